# What scripts/run, scripts/test and their kin need before they start: a Python, system packages, the virtual
# environment, the compiled guest. Sourced, never run. Everything here is quick and silent when nothing is missing.
# shellcheck shell=bash

VENV=.venv
STAMPS=$VENV/.hutch-stamps

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then BOLD=$'\e[1m' DIM=$'\e[2m' RED=$'\e[31m' PLAIN=$'\e[0m'; else BOLD='' DIM='' RED='' PLAIN=''; fi

title() { printf '%s\n' "$BOLD$*$PLAIN"; }
say() { printf '%s\n' "$DIM==>$PLAIN $*" >&2; }
stop() {
  printf '%s\n' "${RED}cannot go on:$PLAIN $1" >&2
  shift
  [ $# -eq 0 ] || printf '    %s\n' "$@" >&2
  exit 1
}

# --- becoming root for the system's package manager ------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

# Sets AS_ROOT to the words to put in front of a command; fails when this user may not.
may_install() {
  have apt-get || return 1
  if [ "$(id -u)" -eq 0 ]; then AS_ROOT=(env); return 0; fi
  if have sudo && sudo -n true 2>/dev/null; then AS_ROOT=(sudo -n env); return 0; fi
  return 1
}

apt_install() {
  local log
  log=$(mktemp)
  say "installing system packages: $*"
  local -a apt=("${AS_ROOT[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120)
  # The package lists may be missing or stale: fetch them only when the first try fails.
  if ! "${apt[@]}" install --no-install-recommends "$@" >"$log" 2>&1 &&
    ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# The one command that brings in the packages named.
how_to_install() {
  if have apt-get; then
    printf 'sudo apt-get update && sudo apt-get install -y --no-install-recommends %s' "$*"
  else
    printf 'with the package manager of your system (names on Debian: %s)' "$*"
  fi
}

# --- system packages -------------------------------------------------------------------------------------------------

have_libseccomp() {
  local folder
  for folder in /lib /usr/lib /lib64 /usr/lib64 /lib/*-linux-gnu /usr/lib/*-linux-gnu; do
    [ -e "$folder/libseccomp.so.2" ] && return 0
  done
  return 1
}

present() {
  case "$1" in
    libseccomp2) have_libseccomp ;;
    nginx-light) present nginx ;;
    kubernetes-client) have kubectl ;;
    systemd) have systemd-analyze ;;
    bubblewrap) have bwrap ;;
    python3-venv) have_environment ;;
    docker.io) have dockerd ;;
    postgresql) have postgres || compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null ;; # Debian: not on PATH
    *) have "$1" || [ -x "/usr/sbin/$1" ] ;;
  esac
}

# need_system REQUIRED... -- WANTED...: installs what is missing. Without the right to do so, a missing package of the
# first kind ends the run with the command to give to an administrator; one of the second kind is only mentioned.
need_system() {
  local -a required=() wanted=()
  local kind=required package
  for package in "$@"; do
    if [ "$package" = -- ]; then kind=wanted; continue; fi
    present "$package" && continue
    if [ $kind = required ]; then required+=("$package"); else wanted+=("$package"); fi
  done
  [ $((${#required[@]} + ${#wanted[@]})) -eq 0 ] && return 0
  if may_install && apt_install "${required[@]}" "${wanted[@]}"; then return 0; fi
  if [ ${#required[@]} -gt 0 ]; then
    stop "these system packages are missing, and this user may not install them: ${required[*]} ${wanted[*]}" \
      "Ask an administrator to run, then start this again:" \
      "  $(how_to_install "${required[@]}" "${wanted[@]}")"
  fi
  say "not installed (${wanted[*]}): going on without. To have them: $(how_to_install "${wanted[@]}")"
}

# --- Python ----------------------------------------------------------------------------------------------------------

# A name on PATH may be a shim that does not run; only running it tells.
python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
python_makes_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }
PYTHON_NAMES=(python3.13 python3.12 python3.11 python3 /usr/bin/python3)
python_real() { "$1" -c 'import os, sys; print(os.path.realpath(sys.executable))'; }

# Sets PYTHON_CHOSEN: $PYTHON when given, else the newest that can make a virtual environment, else the newest.
choose_python() {
  local name without_venv=""
  if [ -n "${PYTHON:-}" ]; then
    python_is_new_enough "$PYTHON" ||
      stop "PYTHON=$PYTHON does not run, or is older than 3.11." "Set PYTHON to a Python of at least 3.11, or unset it."
    PYTHON_CHOSEN=$(python_real "$PYTHON")
    return 0
  fi
  for name in "${PYTHON_NAMES[@]}"; do
    python_is_new_enough "$name" || continue
    if python_makes_venvs "$name"; then PYTHON_CHOSEN=$(python_real "$name"); return 0; fi
    [ -n "$without_venv" ] || without_venv=$name
  done
  [ -n "$without_venv" ] ||
    stop "no Python of at least 3.11 was found (tried: ${PYTHON_NAMES[*]})." \
      "Install one with its 'venv' module, or set PYTHON to where it is."
  PYTHON_CHOSEN=$(python_real "$without_venv")
}

# A pip of any Python that can install into another one's environment (`pip --python`, since 22.3).
foreign_pip() {
  local name
  for name in "$@" "${PYTHON_NAMES[@]}"; do
    if "$name" -m pip --python "$name" --version >/dev/null 2>&1; then printf '%s' "$name"; return 0; fi
  done
  return 1
}

# Whether an environment is there, or could be made with what is installed.
have_environment() {
  local name
  [ -x "$VENV/bin/python" ] || [ -n "${PYTHON:-}" ] && return 0
  for name in "${PYTHON_NAMES[@]}"; do
    if python_is_new_enough "$name" && { python_makes_venvs "$name" || foreign_pip >/dev/null; }; then return 0; fi
  done
  return 1
}

make_venv() {
  local donor
  rm -rf "$VENV"
  if python_makes_venvs "$PYTHON_CHOSEN"; then
    "$PYTHON_CHOSEN" -m venv "$VENV"
  elif donor=$(foreign_pip "$PYTHON_CHOSEN"); then
    say "$PYTHON_CHOSEN lacks 'ensurepip': using the pip of $donor"
    "$PYTHON_CHOSEN" -m venv --without-pip "$VENV"
  else
    stop "$PYTHON_CHOSEN cannot make a virtual environment: its 'ensurepip' is missing." \
      "On Debian and Ubuntu the package $(venv_package "$PYTHON_CHOSEN") brings it:" \
      "  $(how_to_install "$(venv_package "$PYTHON_CHOSEN")")" \
      "or set PYTHON to another Python of at least 3.11."
  fi
}

venv_package() { "$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'; }

pip_install() {
  local -a pip=("$VENV/bin/python" -m pip)
  local donor
  if ! "${pip[@]}" --version >/dev/null 2>&1; then
    donor=$(foreign_pip "$(python_real "$VENV/bin/python")") || stop "there is no pip to install with." "Remove $PWD/$VENV and start this again."
    pip=("$donor" -m pip --python "$VENV/bin/python")
  fi
  "${pip[@]}" -qq --disable-pip-version-check install --no-input "$@"
}

install_pinned() {
  local file
  local -a files=()
  for file in "$@"; do files+=(-r "requirements/$file.txt"); done
  pip_install --require-hashes --no-deps "${files[@]}" ||
    stop "pip could not install the pinned dependencies (its own words are above)." \
      "Without a network, start this once with one; behind a proxy or mirror, set pip up for it (pip config)."
}

# --- the virtual environment -----------------------------------------------------------------------------------------

fingerprint() { cat "$@" | sha256sum | cut -d ' ' -f 1; }
stamped() { [ -f "$STAMPS/$1" ] && [ "$(cat "$STAMPS/$1")" = "$2" ]; }
stamp() { mkdir -p "$STAMPS" && printf '%s\n' "$2" >"$STAMPS/$1"; }

# A virtual environment holds absolute paths and one Python: it is made anew when the folder moved or PYTHON changed.
venv_fits() {
  [ -f "$STAMPS/home" ] && [ "$(sed -n 1p "$STAMPS/home")" = "$PWD" ] || return 1
  "$VENV/bin/python" -c '' 2>/dev/null || return 1
  [ -z "${PYTHON:-}" ] || [ "$(python_real "$VENV/bin/python")" = "$(python_real "$PYTHON")" ]
}

need_base() {
  if ! venv_fits; then
    [ ! -e "$VENV" ] || [ -O "$VENV" ] ||
      stop "$PWD/$VENV belongs to another user and does not run for you." "Make a clone of your own, and start from there."
    [ -w . ] || stop "$PWD is not writable for you." "Make a clone of your own, and start from there."
    choose_python
    say "making $VENV with $PYTHON_CHOSEN"
    make_venv
    stamp home "$PWD"
  fi
  local want
  want=$(fingerprint requirements/base.txt requirements/build.txt)
  if ! stamped base "$want"; then
    say "installing pinned dependencies (about 120 MB, most of it the compiler of the guest)"
    install_pinned base build
    stamp base "$want"
  fi
  need_hutch
}

# Hutch itself, editable; the build compiles the guest. Its sources decide when that is done again.
need_hutch() {
  local want
  local -a sources
  mapfile -t sources < <(find guest -maxdepth 1 -name '*.c' -o -name '*.h' -o -name '*.py' | LC_ALL=C sort)
  want=$(fingerprint pyproject.toml hatch_build.py "${sources[@]}")
  stamped hutch "$want" && return 0
  say "building the guest and installing hutch"
  # The compiler keeps its cache where this can be thrown away, and not in a home that may not be writable.
  ZIG_GLOBAL_CACHE_DIR=$PWD/$VENV/zig-cache pip_install --no-deps --no-build-isolation --editable . ||
    stop "the guest could not be built, or hutch not installed (the reason is above)." \
      "In an unchanged checkout this is a fault of Hutch: please report it with the lines above."
  stamp hutch "$want"
}

need_dev() {
  need_base
  local want
  want=$(fingerprint requirements/dev.txt)
  stamped dev "$want" && return 0
  say "installing what checks and tests need"
  install_pinned dev
  stamp dev "$want"
}

# need_suite NAME: sets SUITE_PYTHON, of an environment with the pins of requirements/suite-NAME.txt. Hutch in it is the
# one of the first environment: its sources, and the description that its entry points are found by.
need_suite() {
  local name=$1 want first=$VENV
  # shellcheck disable=SC2034  # read by scripts/test
  SUITE_PYTHON=.venv-$name/bin/python
  (
    VENV=.venv-$name STAMPS=.venv-$name/.hutch-stamps
    if ! venv_fits; then
      PYTHON_CHOSEN=$(python_real "$first/bin/python")
      say "making $VENV"
      make_venv
      stamp home "$PWD"
    fi
    want=$(fingerprint "requirements/suite-$name.txt" pyproject.toml)
    stamped suite "$want" && exit 0
    say "installing what the suite '$name' needs"
    install_pinned "suite-$name"
    site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    rm -rf "$site"/hutch-*.dist-info
    cp -r "$first"/lib/python*/site-packages/hutch-*.dist-info "$site"
    printf '%s\n' "$PWD/src" >"$site/hutch.pth"
    stamp suite "$want"
  )
}

# Two runs at once in one checkout must not build one environment together.
exclusively() {
  local lock=.venv.lock
  if [ ! -w . ]; then "$@"; return; fi
  exec 9>"$lock"
  flock 9
  "$@"
  exec 9>&-
}
