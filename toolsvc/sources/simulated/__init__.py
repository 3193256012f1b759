"""Tools that a model plays (MTR): `simulated:FILE`, and `hybrid:FILE` for some of them.

- asking.py: requests to a model, repeated until the answer passes a check
- actor.py: ToolActor: the observation of a call
- maker.py: ToolMaker: the tools of a question
- form.py: the schema of a tool set that an endpoint may enforce
- world.py: answers that a group shares
- simulated_tool.py: the tools themselves
- cast.py: the models and other objects that the tools of one source share
- source.py: the source on the command line
- options.py: its options

The tools are schemas alone, as `toolsvc.schemas` reads and checks them.
"""
