"""The command line: one file per group of commands, over what serves several of them."""
