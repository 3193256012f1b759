"""One module a command of `engine` that is not `serve`."""
