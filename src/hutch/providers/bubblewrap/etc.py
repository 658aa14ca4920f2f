"""The /etc of a sandbox: made by us, so that nothing of the host's own configuration shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping

USER = "sandboxuser"
UID = GID = 1000

# Taken over from the host when there: what programs need to find libraries, alternatives and trusted authorities.
HOST_FILES = ("ld.so.cache", "ssl/openssl.cnf", "ssl/certs/ca-certificates.crt", "ssl/cert.pem", "mime.types", "magic")
HOST_FOLDERS_OF_LINKS = ("alternatives",)


def etc_files(hostname: str) -> Mapping[str, str]:
    """Name below /etc -> content."""
    return {
        "passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\n"
        f"{USER}:x:{UID}:{GID}:{USER}:/workspace:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\ntty:x:5:\n{USER}:x:{GID}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost ip6-loopback\n",
        "hostname": f"{hostname}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
        "host.conf": "multi on\n",
        "resolv.conf": "",
        "services": "http 80/tcp\nhttps 443/tcp\n",
        "protocols": "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\n",
        "shells": "/bin/sh\n/bin/bash\n",
        "profile": "",
    }
