"""A first session: hand a sandbox some files, let it work on them, take the result home.

python examples/first_session.py
"""

from __future__ import annotations

import json
import time

from hutch import HutchError, SandboxClient

ORDERS = [
    {"customer": "Ada", "country": "GB", "total": 120.50},
    {"customer": "Grace", "country": "US", "total": 80.00},
    {"customer": "Linus", "country": "FI", "total": 45.25},
    {"customer": "Barbara", "country": "US", "total": 210.00},
    {"customer": "Alan", "country": "GB", "total": 64.75},
]
RATES = "country,vat\nFI,0.255\nGB,0.20\nUS,0\n"

# Totals per country, with tax: the JSON becomes rows, which awk joins with the CSV.
PIPELINE = r"""
jq -r '.[] | "\(.country),\(.total)"' orders.json |
awk -F, 'NR == FNR { if (FNR > 1) vat[$1] = $2; next }
         { gross[$1] += $2 * (1 + vat[$1]) }
         END { for (c in gross) printf "%s,%.2f\n", c, gross[c] }' rates.csv - |
sort -t, -k2 -nr | tee report.csv
"""


def main() -> None:
    started = time.perf_counter()
    with SandboxClient(mode="local") as client:
        session = client.get_or_create_session(user_id="ada", thread_id="first-session")
        client.upload_file_from_bytes("orders.json", json.dumps(ORDERS).encode())
        client.upload_file_from_bytes("rates.csv", RATES.encode())
        print(f"sandbox ready  {session['workspace_dir']} of session {session['session_id']}")
        for entry in client.list_files()["files"]:
            print(f"uploaded       {entry['name']:<12} {entry['size_bytes']:>5} bytes")

        result = client.execute(PIPELINE)
        if result["exit_code"] != 0:
            raise SystemExit(f"the pipeline failed with {result['exit_code']}:\n{result['stderr']}")
        print(f"jq | awk       exit code 0 after {result['execution_time_ms']} ms")

        report = client.download_file_to_bytes("report.csv").decode()
        print("downloaded     report.csv")
        for line in report.splitlines():
            country, gross = line.split(",")
            print(f"                 {country}  {float(gross):>8.2f}")
    print(f"done           in {(time.perf_counter() - started) * 1000:.0f} ms, nothing left behind")


if __name__ == "__main__":
    try:
        main()
    except HutchError as failure:
        raise SystemExit(f"no session ({failure.code}): {failure}") from None
