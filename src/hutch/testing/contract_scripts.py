"""What the contract's tests run in a sandbox, as text for its bash.

A provider without a shell (the fake) gives each of them a behaviour of its own; see `fake_scripts`.
"""

from __future__ import annotations

KILL_SELF = "kill -KILL $$"
TERMINATE_SELF = "kill -TERM $$"
STOP_SELF = "echo ready; kill -STOP $$; echo went on"
ARGUMENTS = r"""printf '%s\0' "$@" """
VARIABLES = "export -p"
OWN_PID = "echo $$"
NUMBERS = "for ((n = 0; n < 20000; n++)); do echo $n; done"
MEGABYTE = "printf '%1000000s' x"
ALL_BYTES = "printf '" + "".join(f"\\{byte:03o}" for byte in range(256)) + "'"
BOTH_STREAMS = "echo out; echo err >&2; echo out again"
CLOSED_OUTPUT = "exec >&- 2>&-; exit 4"
CHANGED_SHELL = "cd /; LEFT=over; set -e; exit 0"
SHOW_CHANGES = 'echo "${LEFT-nothing} $PWD"'

DETACHED = "(setsid sleep 60 &); echo started"
LATE_WRITER = "{ sleep 0.3; echo late; echo done > late.txt; } & echo started"
FAMILY = "sleep 60 & (sleep 60 & sleep 60) & echo ready; wait"
DEAF = "trap '' TERM INT HUP USR1; echo ready; while :; do sleep 60; done"
CATCHES = "trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
CATCHES_BEFORE_SLEEP = "trap 'echo caught' TERM; echo ready; sleep 60; echo after $?"
CATCHES_BEFORE_NAP = "trap 'echo caught' TERM; echo ready; sleep 1; echo after $?"
CATCHES_BEFORE_FAR_SLEEP = "trap 'echo caught' TERM; echo ready; setsid -w sleep 60; echo after $?"
COUNT_SLEEPERS = (
    "n=0; for f in /proc/[0-9]*/comm; do read -r name 2>/dev/null < $f; [[ $name == sleep ]] && n=$((n + 1)); "
    "name=; done; echo $n"
)

READ_LINE = 'read -r line; echo "got $line"'
CLOSED_INPUT = "exec <&-; echo ready; sleep 60"
ON_TERMINAL = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo yes"
TERMINAL_SIZE = "stty size"
TERMINAL_RESIZED = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"
TERMINAL_WAITS = "echo ready; sleep 60; echo survived"

# Links of every kind, a pipe, and two honest files.
LINKS = (
    "mkdir real; echo inside > real/file; ln -s real/file inner; ln -s real inner_folder; ln -s nowhere dangling; "
    "ln -s circle circle; ln -s /etc/passwd out; ln -s ../../../../etc out_folder; ln -s /proc/self/root magic; "
    "mkfifo pipe; echo made"
)
ODD_NAMES = r": > $'new\nline'; : > ./-rf; : > $'\xff\xfe'; : > 'é ü'; : > " + "n" * 255 + "; echo made"
LOCKED_FOLDERS = "mkdir -p locked/below; echo x > locked/below/file; chmod 000 locked/below locked; echo made"
DEEP_FOLDERS = "mkdir -p " + "/".join(["d"] * 300) + "; echo made"

PORT = 5005
# Sends a line to the host at that port, and prints the answer until its end.
CALL_HOST = f"""exec python3 -c '
import socket
connection = socket.create_connection(("127.0.0.1", {PORT}))
connection.sendall(b"from inside")
connection.shutdown(socket.SHUT_WR)
while data := connection.recv(65536):
    print(data.decode(), end="")
'"""
# Answers each connection with what it was sent, then ends it.
ECHO_SERVER = f"""exec python3 -u -c '
import socket, threading
server = socket.create_server(("127.0.0.1", {PORT}))
print("ready")
def serve(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
'"""
