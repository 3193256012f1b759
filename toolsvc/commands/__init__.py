"""What `toolsvc` can be asked to do, one module a command."""
