#!/bin/sh
# Types the quick starts of README.md in a clean root of Debian, and prints docs/transcripts.md: what
# each line printed, and how long it took. It runs in a mount namespace of its own, as root:
# `unshare --mount sh quick-starts.sh ROOT PACKAGES OWN SOURCES HEADING`.
#
# ROOT and PACKAGES are those of clean-root.sh, and OWN is a directory for the layer. SOURCES are
# those of bzip2. HEADING is a line about versions for the page. cargo and node of this machine are
# shown in the root, because Debian's need hundreds of packages.
set -eu
root=$1
packages=$2
own=$3
sources=$4
heading=$5

. "$(dirname "$0")/layer.sh"
larder_path=/home/user/.local/bin
path=$larder_path:/opt/rust/bin:$path

# Types a line. Its output is printed, and the time below it.
typed() {
    printf '$ %s\n' "$1"
    begin=$(date +%s%N)
    inside "! [ -e ~/.profile ] || . ~/.profile; cd ~/$directory; $1" >"$own/said" 2>&1 || {
        cat "$own/said" >&2
        echo "failed: $1" >&2
        exit 1
    }
    cat "$own/said"
    end=$(date +%s%N)
    printf '# %d.%02d s\n' $(((end - begin) / 1000000000)) $(((end - begin) / 10000000 % 100))
}

# Begins a quick start in a directory.
begin() {
    directory=$1
    printf '\n## %s\n\n%s\n\n```\n' "$2" "$3"
    inside "rm -rf ~/.cache/larder && mkdir -p ~/$directory"
}

cat <<END
# Transcripts of the quick starts

The quick starts of README.md, typed in a clean root of Debian (debootstrap, with gcc and make):
each line, what it prints, and its time. $heading
\`cargo xtask dist --try --transcripts\` writes this page; do not edit it.
END

begin bzip2 'A C project' 'bzip2 1.0.8 with its own Makefile, from the archive of a release to a warm build.'
cp -r "$sources/." "$layer/root/home/user/bzip2"
# Files that are newer than a build are not trusted.
inside 'find ~/bzip2 -exec touch -d "1 hour ago" {} +'
typed 'sh /packages/install.sh --from /packages'
typed 'SHELL=/bin/sh larder init --yes'
typed 'make -s CFLAGS=-O2 bzip2'
typed 'make -s clean && make -s CFLAGS=-O2 bzip2'
typed 'make -s clean && make -s CFLAGS=-O2 bzip2 && larder stats'
typed 'larder explain compress.o'
typed 'larder init --undo'
echo '```'

if command -v rustc >/dev/null; then
    rust=$(rustc --print sysroot)
    mkdir -p "$layer/root/opt/rust"
    mount --bind "$rust" "$layer/root/opt/rust"
    begin hello 'A Rust workspace' "A program and a library of its own, with $(rustc --version | cut -d' ' -f1,2)."
    inside 'mkdir -p ~/hello/src && cd ~/hello && echo "pub fn text() -> &'"'static str { \\\"hello\\\" }"'" >src/lib.rs
        echo "fn main() { println!(\"{}\", hello::text()) }" >src/main.rs
        printf "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2021\"\n" >Cargo.toml
        find . -exec touch -d "1 hour ago" {} +'
    typed 'larder init cargo --yes'
    typed 'cargo build --quiet && cargo clean --quiet && cargo build --quiet'
    typed 'cargo clean --quiet && cargo build --quiet && target/debug/hello'
    typed 'larder stats'
    echo '```'
else
    echo "skipped: no rustc, so the page has no Rust workspace" >&2
fi

modules=/usr/lib/node_modules
if node=$(command -v node) && [ -d "$modules/npm" ]; then
    mkdir -p "$layer/root$modules"
    mount --bind "$modules" "$layer/root$modules"
    touch "$layer/root/usr/local/bin/node"
    mount --bind "$node" "$layer/root/usr/local/bin/node"
    ln -s "$modules/npm/bin/npm-cli.js" "$layer/root/usr/local/bin/npm"
    begin app '`node_modules` in CI' "One dependency from a file, because the root has no network; node $(node --version)."
    inside 'cd ~/app && mkdir greet && echo "{ \"name\": \"greet\", \"version\": \"1.0.0\" }" >greet/package.json
        npm pack --silent ./greet >/dev/null
        echo "{ \"name\": \"app\", \"dependencies\": { \"greet\": \"file:greet-1.0.0.tgz\" } }" >package.json
        npm install --package-lock-only --silent'
    restore="larder image restore --key 'node-{{hash package-lock.json}}' --replace --if-missing 'npm ci --silent' node_modules"
    typed "$restore"
    typed 'rm -r node_modules'
    typed "$restore"
    typed 'ls node_modules'
    echo '```'
else
    echo "skipped: no node with npm, so the page has no node_modules" >&2
fi

begin bzip2 'The Debian package' 'Installed, used, upgraded to the same version, removed.'
inside '! [ -d ~/hello ] || (cd ~/hello && larder init --undo >/dev/null)
    sh /packages/install.sh --uninstall >/dev/null'
package=$(cd "$packages" && echo larder_*_"$(dpkg --print-architecture)".deb)
path=${path#"$larder_path:"}
typed "dpkg --install /packages/$package"
typed 'make -s clean && make -s CC="larder gcc" CFLAGS=-O2 bzip2'
typed 'make -s clean && make -s CC="larder gcc" CFLAGS=-O2 bzip2 && larder stats'
typed "dpkg --install /packages/$package"
typed 'dpkg --purge larder; command -v larder || echo "no larder"'
echo '```'
