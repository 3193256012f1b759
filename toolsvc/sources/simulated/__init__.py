"""Tools that a model plays (MTR): `simulated:FILE`, and `hybrid:FILE` for some of them.

asking.py           a model's answer that has to pass a check, asked for again where it does not
actor.py            ToolActor: the observation of a call
maker.py            ToolMaker: the tools of a question
form.py             what an endpoint may be told of a tool set
world.py            answers that a group shares
simulated_tool.py   the tools themselves
cast.py             the models, and what else the tools of one source share
source.py           words of the command line
options.py          their options

The tools are schemas alone, as `toolsvc.schemas` reads and checks them.
"""
