"""The command line: one file per noun. Over the client; doctor also asks the provider directly."""
