"""How outside input is read. Every package reads the same input through the same function here.

actions.py, action_ends.py   what a policy wrote: calls, blocks, and the tags that count
thoughts.py                  thoughts in what a model writes
answers.py, expressions.py   final answers and their canonical forms
verdicts.py                  the verdict of a judging model
tool_arguments.py            what the maker of a tool says of its arguments
task_rows/                   rows of task files
patches.py                   paths in a patch
verification_folder.py       names in the folder of a verification
json_text/                   bounds of JSON, and JSON that is still being written
pixels.py                    images
files.py, sqlite_files.py    files that may be hostile

Recipes import `actions`, `action_ends`, `answers`, `expressions`, `tool_arguments`: these keep
their names. Nothing here imports torch. A module imports a third-party library only if an extra of
the project installs it.
"""
