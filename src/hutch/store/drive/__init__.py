"""The drive's tables: files, versions and content of users, and what finds them again."""
