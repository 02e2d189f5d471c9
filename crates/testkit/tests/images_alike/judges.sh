# Makes a project (`make`) or works in it (`act`) with git, npm, pip or cargo: `judges.sh git act`.
#
# `act` prints what must be the same in a plain directory and in a mounted image. What a step prints
# to standard error is shown only if the test fails.
set -eu

git_of_test() {
    git -c user.name=a -c user.email=a@example.com -c commit.gpgsign=false -c gc.auto=0 "$@"
}

git_make() {
    git init -q .
    mkdir -p src/deep docs
    for name in src/a src/b src/deep/c docs/d; do
        echo "$name" >"$name"
    done
    git_of_test add .
    git_of_test commit -qm one
}

git_act() {
    git status --porcelain
    git mv src lib
    git mv docs lib/docs
    git status --porcelain
    git_of_test commit -qm two
    echo more >>lib/a
    git_of_test stash -q
    cat lib/a
    git_of_test stash pop -q
    git diff --stat
    git checkout -q -f HEAD~1
    find src docs -type f | sort
    test ! -e lib
    git checkout -q -b other
    git worktree add -q ../worktree HEAD
    ls ../worktree
    git worktree remove ../worktree
    git gc -q
    git fsck --strict --no-progress --no-dangling
    git clean -fdxq
    git status --porcelain
}

npm_make() {
    for number in 1 2; do
        mkdir package
        echo "{\"name\":\"dep\",\"version\":\"$number.0.0\",\"main\":\"lib/index.js\"}" >package/package.json
        mkdir package/lib
        echo "console.log('dependency $number')" >package/lib/index.js
        tar -czf "dep-$number.tgz" package
        rm -r package
    done
    echo '{"name":"app","version":"1.0.0","dependencies":{"dep":"file:dep-1.tgz"}}' >package.json
    npm install --silent --no-audit --no-fund
}

npm_act() {
    npm ls
    node -e 'require("dep")'
    npm install --silent --no-audit --no-fund ./dep-2.tgz
    node -e 'require("dep")'
    npm ci --silent --no-audit --no-fund
    node -e 'require("dep")'
    # As vite does with the cache of its dependencies.
    mkdir -p node_modules/.vite/deps node_modules/.vite/deps_temp
    node -e '
        const fs = require("fs");
        fs.renameSync("node_modules/dep/lib", "node_modules/dep/other");
        fs.renameSync("node_modules/dep", "node_modules/.vite/deps/dep");
        console.log(fs.readdirSync("node_modules/.vite/deps/dep/other"));'
    npm prune --silent --no-audit --no-fund
    npm uninstall --silent --no-audit --no-fund dep
    find . -not -path './.npm*' | sort
}

wheel() {
    python3 - "$1" <<'END'
import sys
import zipfile

version = sys.argv[1]
info = f"dep-{version}.dist-info"
with zipfile.ZipFile(f"dep-{version}-py3-none-any.whl", "w") as wheel:
    wheel.writestr("dep/__init__.py", f"print('dependency {version}')\n")
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: dep\nVersion: {version}\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", f"dep/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
END
}

pip_make() {
    wheel 1.0
    wheel 2.0
    python3 -m venv .venv
    .venv/bin/python -m pip install -q --no-index ./dep-1.0-py3-none-any.whl
}

pip_act() {
    .venv/bin/python -c 'import dep'
    .venv/bin/python -m pip install -q --no-index ./dep-2.0-py3-none-any.whl
    .venv/bin/python -c 'import dep'
    .venv/bin/python -m pip check
    .venv/bin/python -m pip uninstall -q -y dep
    .venv/bin/python -m pip list --format freeze >freeze
    grep -c dep freeze || [ $? -eq 1 ]
    rm freeze
    python3 -m venv --clear .venv
    .venv/bin/python -m pip install -q --no-index ./dep-1.0-py3-none-any.whl
    .venv/bin/python -c 'import dep'
}

cargo_make() {
    mkdir -p src part/src
    printf '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\npart = { path = "part" }\n' >Cargo.toml
    printf '[package]\nname = "part"\nversion = "1.0.0"\nedition = "2021"\n' >part/Cargo.toml
    echo 'pub fn text() -> &'"'"'static str { "part" }' >part/src/lib.rs
    echo 'fn main() { println!("{}", part::text()) }' >src/main.rs
    cargo build -q --offline
    # cargo compares times of files, and the content of an image is older than its mount.
    sleep 1.1
}

cargo_act() {
    # Nothing is compiled again.
    cargo build -v --offline 2>&1 | sed -n 's/^ *\(Fresh\|Compiling\|Dirty\) \([a-z]*\).*/\1 \2/p'
    cargo run -q --offline
    echo 'pub fn text() -> &'"'"'static str { "changed" }' >part/src/lib.rs
    cargo build -v --offline 2>&1 | sed -n 's/^ *\(Fresh\|Compiling\) \([a-z]*\).*/\1 \2/p'
    cargo run -q --offline
    cargo clean -q -p part --offline
    cargo run -q --offline
    cargo clean -q --offline
    ls
}

"$1_$2"
