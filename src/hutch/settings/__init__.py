"""Settings: what may be said in the environment. Read by the roots only, once, and handed down.

PORT, HOST, DEBUG, WORKERS, DATABASE_URL and REDIS_* are a server's (`ServerSettings`): somebody's program, which reads
only `Settings`, may use them for something else.
"""

from hutch.settings.declarations import Explained, Settings
from hutch.settings.reading import SettingsWarning, read_server_settings, read_settings
from hutch.settings.serving import ServerSettings

__all__ = ["Explained", "ServerSettings", "Settings", "SettingsWarning", "read_server_settings", "read_settings"]
