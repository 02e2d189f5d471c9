# The one action of configure_make: the sources into a directory of the action's own, ./configure, make, make install,
# and what was installed into the action's output. Read by a shell in the execution root in which
# configure_make.bzl has set the variables that are used here. The names of directories and variables are rules_foreign_cc's.
set -euo pipefail

export EXT_BUILD_ROOT=$PWD
export INSTALLDIR=$EXT_BUILD_ROOT/$INSTALLED
export BUILD_TMPDIR=$INSTALLDIR.build_tmpdir
export EXT_BUILD_DEPS=$INSTALLDIR.ext_build_deps
mkdir -p "$INSTALLDIR" "$BUILD_TMPDIR" "$EXT_BUILD_DEPS/include" "$EXT_BUILD_DEPS/lib"
log=$BUILD_TMPDIR.log

# The dependencies in one place, as links.
for dependency in $DEPENDENCIES; do
    for part in include lib; do
        cp -rs "$EXT_BUILD_ROOT/$dependency/$part/." "$EXT_BUILD_DEPS/$part"
    done
done
if [ -n "$DEPENDENCIES" ]; then
    export CPPFLAGS="-I$EXT_BUILD_DEPS/include"
    export LDFLAGS="-L$EXT_BUILD_DEPS/lib"
fi

configure=$EXT_BUILD_ROOT/$CONFIGURE
cd "$BUILD_TMPDIR"
if [ -n "$IN_PLACE" ]; then
    cp -rL "$(dirname "$configure")/." .
    chmod -R u+w .
    configure=./configure
fi
# Sources that are links keep their own times; copies are all of one moment, and need not be made from each other again.
prefix=$BUILD_TMPDIR/$NAME

# What the phases cost is asked for by the benchmark only: the moments that each began and ended, and CPU seconds of it.
phase() {
    local name=$1 start
    shift
    start=$(date +%s.%N)
    if ! (TIMEFORMAT="$name %R %U %S"; time "$@" >>"$log" 2>&1) 2>>"$BUILD_TMPDIR.times"; then
        tail -n 60 "$log" >&2
        exit 1
    fi
    echo "$name-from $start" >>"$BUILD_TMPDIR.times"
    echo "$name-to $(date +%s.%N)" >>"$BUILD_TMPDIR.times"
}

configure() {
    eval "$CONFIGURE_PREFIX \"\$configure\" --prefix=\"\$prefix\" $CONFIGURE_OPTIONS"
}

# D: archives without the times of their members. zlib's ./configure reads the first name, libtool's the second.
export CC AR ARFLAGS=rcsD AR_FLAGS=rcsD
[ -z "${CFLAGS-}" ] || export CFLAGS
[ -z "${TIMES-}" ] || echo "place $EXT_BUILD_ROOT" >"$BUILD_TMPDIR.times"
phase configure configure
# Prefixes are words, as rules_foreign_cc has them.
phase make $TOOL_PREFIX make -j"$JOBS"
phase install $TOOL_PREFIX make install

if [ -n "${TIMES-}" ]; then
    cp "$BUILD_TMPDIR.times" "$EXT_BUILD_ROOT/$TIMES"
    find . -name '*.o' -o -name '*.lo' -o -name config.h | LC_ALL=C sort |
        tar -cf "$EXT_BUILD_ROOT/$OBJECTS" --mtime=@0 --owner=0 --group=0 -T -
fi
cp -a "$prefix/." "$INSTALLDIR"
