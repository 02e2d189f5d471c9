#!/bin/sh
# Installs larder in a clean root of Debian, builds something with it, and removes it. It runs in a
# mount namespace of its own: `unshare --mount sh clean-root.sh ROOT PACKAGES`, as root.
#
# ROOT is what debootstrap made, with gcc and make. PACKAGES is what `cargo xtask dist` made. ROOT
# gets a layer on top, so it stays as it is.
set -eu
root=$1
packages=$2
own=$3

. "$(dirname "$0")/layer.sh"

cat >"$layer/root/tmp/project.sh" <<'END'
# Builds a small project twice after `larder init`, and fails unless the second build hits.
set -eu
mkdir -p "$HOME/project"
cd "$HOME/project"
printf '#include "a.h"\nint main(void) { return a() - A; }\n' >main.c
printf '#include "a.h"\nint a(void) { return A; }\n' >a.c
printf '#define A 3\nint a(void);\n' >a.h
printf 'main: main.o a.o\nclean:\n\trm -f *.o main\n' >Makefile
touch -d '1 hour ago' ./*
SHELL=/bin/sh larder init --yes
# A new login shell, with the profile that init wrote.
for number in 1 2 3; do
    (. "$HOME/.profile" && make clean && make && ./main) >/dev/null
    sleep 0.1
done
larder stats
larder stats --json | grep -q '"hit": [1-9]' || { echo "no hits" >&2; exit 1; }
larder explain main.o | grep -q '^Hit: '
larder init --undo
! [ -e "$HOME/.local/share/larder" ]
END

echo "── the archive, by install.sh"
path=/home/user/.local/bin:$path
inside 'sh /packages/install.sh --from /packages'
inside 'sh /tmp/project.sh'
inside 'sh /packages/install.sh --uninstall'
inside '! command -v larder'
inside 'rm -rf /home/user/.cache/larder /home/user/project /home/user/.local/state
    test -z "$(find /home/user -iname "*larder*")"'

for archive in "$packages"/larder-csi-*-"$(uname -m)"-linux.tar.gz; do
    [ -e "$archive" ] || continue
    echo "── the archive for Kubernetes"
    inside "cd /tmp && tar -xzf /packages/${archive##*/} && cd larder-csi-* && ./larder-csi --version && ./larder --version
        for file in \$(sed -n 's/^COPY \(.*\) [^ ]*\$/\1/p' Containerfile); do test -x \"\$file\"; done
        for file in \$(sed -n 's/^  - \(.*\.yaml\)\$/\1/p' kubernetes/kustomization.yaml); do test -f \"kubernetes/\$file\"; done"
done

echo "── an archive that was changed"
mkdir -p "$layer/root/tmp/changed"
find "$packages" -maxdepth 1 -type f -exec cp {} "$layer/root/tmp/changed/" \;
for archive in "$layer"/root/tmp/changed/larder-*.tar.gz; do
    printf x >>"$archive"
done
inside 'if sh /packages/install.sh --from /tmp/changed 2>/tmp/said; then exit 1; fi
    grep -q "nothing was installed" /tmp/said; ! command -v larder'

# An earlier version, of the same programs: without a man page that the new one has, and with a file that it lacks.
older=$own/older
rm -rf "$older"
mkdir -p "$older" "$layer/root/tmp/older"
dpkg-deb --raw-extract "$packages"/larder_*_"$(dpkg --print-architecture)".deb "$older"
sed -i 's/^Version: .*/Version: 0.0.1/' "$older/DEBIAN/control"
rm "$older/usr/share/man/man1/larder-stats.1.gz"
echo old >"$older/usr/share/doc/larder/notes-of-old"
dpkg-deb --root-owner-group -Zgzip -z1 --build "$older" "$layer/root/tmp/older/larder.deb" >/dev/null
rm -rf "$older"

echo "── the .deb: installed, upgraded, removed, purged"
package="/packages/larder_*_$(dpkg --print-architecture).deb"
listing='find / -xdev -not -path "/tmp/*" -not -path "/packages/*" -not -path "/var/*" -not -path "/home/*" | sort'
inside "$listing >/tmp/before"
inside 'dpkg -i /tmp/older/larder.deb && test -e /usr/share/doc/larder/notes-of-old'
inside 'sh /tmp/project.sh'
# What users and administrators set up beside the package: a configuration, an enabled unit, an override.
inside 'mkdir -p ~/.config/larder ~/.config/systemd/user/sockets.target.wants /etc/systemd/system/larder-broker.service.d
    echo "max_size = \"3 GiB\"" >~/.config/larder/larder.toml
    ln -s /usr/lib/systemd/user/larderd.socket ~/.config/systemd/user/sockets.target.wants/
    printf "[Service]\nNice=5\n" >/etc/systemd/system/larder-broker.service.d/own.conf'
theirs='cd / && md5sum home/user/.config/larder/larder.toml etc/systemd/system/larder-broker.service.d/own.conf'
inside "$theirs >/tmp/theirs; larder daemon start && larder daemon status >/dev/null"
inside "dpkg -i $package </dev/null"
inside "dpkg-query -W -f '\${Version}' larder | grep -v '^0.0.1\$'
    ! [ -e /usr/share/doc/larder/notes-of-old ]; [ -e /usr/share/man/man1/larder-stats.1.gz ]
    cd / && md5sum --quiet -c /tmp/theirs && larder config | grep -q '3 GiB'"
inside 'test "$(readlink -e ~/.config/systemd/user/sockets.target.wants/larderd.socket)" = /usr/lib/systemd/user/larderd.socket
    test -e /usr/lib/systemd/system/larder-broker.service
    for unit in /usr/lib/systemd/*/larder*; do
        sed -n "s/^ExecStart=\([^ ]*\).*/\1/p" "$unit" | while read -r program; do test -x "$program"; done
    done'
# The daemon of the earlier version still answers; the next one to start is the new one.
inside 'larder daemon status >/dev/null && larder daemon stop'
inside 'sh /tmp/project.sh'
inside 'dpkg --remove larder && ! command -v larder
    test -z "$(find /usr /etc -path /etc/systemd/system/larder-broker.service.d -prune -o -iname "*larder*" -print)"'
inside "cd / && md5sum --quiet -c /tmp/theirs"
inside 'dpkg --purge larder 2>/dev/null; rm -r /etc/systemd/system/larder-broker.service.d'
inside "$listing >/tmp/after; diff /tmp/before /tmp/after"
inside 'test -d ~/.cache/larder && test -e ~/.config/larder/larder.toml'
echo "── clean: the archive and the package can be installed, upgraded, used and removed"
