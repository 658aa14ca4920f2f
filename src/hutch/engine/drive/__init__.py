"""The drive: durable files of users, which need no sandbox."""
