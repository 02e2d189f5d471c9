#!/bin/sh
# Installs larder from a release: downloads the archive for this machine, verifies it, and unpacks it.
#
#   sh install.sh --from URL|DIRECTORY [--prefix DIR] [--signers FILE]
#   sh install.sh --uninstall [--prefix DIR]
#
# The archive must have the SHA-256 sum that SHA256SUMS of the same place says. With --signers, a
# file as ssh-keygen(1) describes under ALLOWED SIGNERS, SHA256SUMS must also be signed.
set -eu

version='@VERSION@'
from='@RELEASES@'
prefix=${HOME:+$HOME/.local}
signers=
uninstall=

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --from | --prefix | --signers)
            [ $# -ge 2 ] || fail "$1 needs a value"
            case $1 in
                --from) from=$2 ;;
                --prefix) prefix=$2 ;;
                --signers) signers=$2 ;;
            esac
            shift 2
            ;;
        --uninstall)
            uninstall=yes
            shift
            ;;
        -h | --help)
            echo "usage: sh install.sh --from URL|DIRECTORY [--prefix DIR] [--signers FILE]"
            echo "       sh install.sh --uninstall [--prefix DIR]"
            exit 0
            ;;
        *) fail "unknown option $1: \`sh install.sh --help\` lists all" ;;
    esac
done

[ -n "$prefix" ] || fail "HOME is not set: add --prefix DIR"

completions="share/bash-completion/completions/larder share/zsh/site-functions/_larder share/fish/vendor_completions.d/larder.fish"

if [ -n "$uninstall" ]; then
    # Builds that call larder by its name would fail without it.
    changed=${XDG_STATE_HOME:-${HOME:-}/.local/state}/larder/init.json
    ! [ -e "$changed" ] || fail "\`larder init\` changed files, which $changed lists: run \`larder init --undo\` in each of its directories first, or remove $changed"
    ! [ -x "$prefix/bin/larder" ] || "$prefix/bin/larder" daemon stop || true
    rm -f "$prefix/bin/larder" "$prefix/bin/larderd" "$prefix/share/man/man1/larder.1" "$prefix"/share/man/man1/larder-*.1
    for file in $completions; do
        rm -f "$prefix/$file"
    done
    echo "removed larder from $prefix; the store stays: rm -r ~/.cache/larder removes it"
    exit 0
fi

case $from in
    '' | @*) fail "say where the release is: --from URL or --from DIRECTORY" ;;
esac
case $(uname -s)-$(uname -m) in
    Linux-x86_64) arch=x86_64 ;;
    Linux-aarch64 | Linux-arm64) arch=aarch64 ;;
    *) fail "there is no release for $(uname -s) on $(uname -m): build it with cargo" ;;
esac
name=larder-$version-$arch-linux
archive=$name.tar.gz

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

get() {
    case $from in
        http://* | https://*)
            if command -v curl >/dev/null; then
                curl -fsSL --retry 3 -o "$work/$1" "$from/$1" || fail "$from/$1 cannot be downloaded"
            elif command -v wget >/dev/null; then
                wget -q -O "$work/$1" "$from/$1" || fail "$from/$1 cannot be downloaded"
            else
                fail "neither curl nor wget is installed"
            fi
            ;;
        *) cp "${from#file://}/$1" "$work/$1" || fail "$from has no $1" ;;
    esac
}

get SHA256SUMS
if [ -n "$signers" ]; then
    get SHA256SUMS.sig
    ssh-keygen -Y verify -f "$signers" -I larder -n larder -s "$work/SHA256SUMS.sig" <"$work/SHA256SUMS" >/dev/null ||
        fail "SHA256SUMS is not signed by a key of $signers: nothing was installed"
fi
get "$archive"
(cd "$work" && grep "  $archive\$" SHA256SUMS >wanted && sha256sum -c --quiet wanted >/dev/null 2>&1) ||
    fail "$archive does not have the sum that SHA256SUMS says: nothing was installed"

tar -xzf "$work/$archive" -C "$work"
mkdir -p "$prefix/bin" "$prefix/share/man/man1" || fail "$prefix cannot be written: choose another --prefix"
for program in larderd larder; do
    # Not in place, because a program that runs cannot be overwritten.
    cp "$work/$name/$program" "$prefix/bin/.$program.new" && mv -f "$prefix/bin/.$program.new" "$prefix/bin/$program" ||
        fail "$prefix/bin/$program cannot be written"
done
cp "$work/$name"/man/*.1 "$prefix/share/man/man1/"
for file in $completions; do
    mkdir -p "$prefix/${file%/*}"
    cp "$work/$name/completions/${file##*/}" "$prefix/$file"
done

echo "installed larder $version in $prefix/bin"
case ":$PATH:" in
    *":$prefix/bin:"*) ;;
    *) echo "next: put it in PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
echo "next: \`larder doctor\` checks this machine; \`larder init\` in a project switches it on"
