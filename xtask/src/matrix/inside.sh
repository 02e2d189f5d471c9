#!/bin/sh
# The checks that `cargo xtask matrix` runs in a cell: sh inside.sh PART...
#
# A result is a line "@<tab>CHECK<tab>STATE<tab>TEXT". All other lines are for the log. States:
#   ok       correct, and as fast as possible (all hits, or mounted as requested)
#   missed   correct, but not all hits
#   no       not possible here, and larder said so; the result is correct
#   wrong    another result than without larder, or a failure
#   hung     did not end within its time limit
#   untried  the check could not run
#
# Environment: CELL (a directory with bin/, project/ and these files), WORK (a directory of this
# user), LIMIT (seconds for one step), FILES (the number of files in an image), TARGETS (the targets of
# the project to build, instead of all), TORTURE (options of each run of the torture suite, separated
# by ";").

PATH=$CELL/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
TMPDIR=$WORK/tmp
HOME=$WORK/home
export PATH TMPDIR HOME
unset LARDER_DIR LARDER_OBSERVER
tab=$(printf '\t')
mkdir -p "$TMPDIR" "$HOME"
cd "$WORK" || exit 1
me=$(id -un)

# Prints a result. Paths and digests that differ in each run are removed, so that one cause becomes one
# note of the table.
say() {
    text=$(printf '%s' "$3" | tr '\n\t' '  ' |
        sed "s,$CELL/[a-z]*/[a-z]*/store/[^ :;]*,(store),g; s/[0-9a-f]\{16,\}/…/g; s/: \`larder image run\` mounts for one command[^;]*COMMAND\`//g" |
        cut -c1-400)
    printf '@\t%s\t%s\t%s\n' "$1" "$2" "$text"
}

limit() {
    timeout -k 10 "$LIMIT" "$@" < /dev/null
}

# failed CHECK CODE STEP FILE: prints the result of a command that failed, with a line of its output.
failed() {
    case $2 in
    124 | 137) say "$1" hung "$3: did not end within $LIMIT s" ;;
    *) say "$1" wrong "$3: exit code $2: $(grep -v '^ *$' "$4" | head -n 1)" ;;
    esac
}

# no_plain CHECK CODE: prints that the plain build failed, so there is nothing to compare with.
no_plain() {
    case $2 in
    124 | 137) say "$1" untried "the build without larder did not end within $LIMIT s" ;;
    *) say "$1" untried "does not build without larder either: $(grep -v '^ *$' ../plain/said | tail -n 1)" ;;
    esac
}

hits_in() {
    grep -c ' hit: ' "$1" 2> /dev/null
}

# Prints the most frequent reason in a log of larder why a command did not hit.
why_in() {
    grep -v ' hit: ' "$1" 2> /dev/null | grep -v 'miss: .* · recorded$' | sed 's/^[^:]*\(miss\|bypass\|fallback\)[^·]*· /\1: /; s/^[0-9.]* [0-9]* //' |
        sed 's/ · \/.*//; s/not recorded · //' | sort | uniq -c | sort -rn | sed -n '1s/^ *\([0-9]*\) /\1 × /p'
}

# ---- versions

versions() {
    say kernel ok "$(uname -r)"
    say distribution ok "$(. /etc/os-release 2> /dev/null && echo "$PRETTY_NAME")"
    say libc ok "$( (getconf GNU_LIBC_VERSION || ldd --version) 2> /dev/null | head -n 1)"
    compilers=
    for file in /usr/bin/gcc-[0-9]* /usr/bin/clang-[0-9]* /usr/bin/musl-gcc; do
        [ -x "$file" ] && compilers="$compilers, $(basename "$file" | tr - ' ') ($("$file" -dumpfullversion 2> /dev/null || "$file" -dumpversion))"
    done
    say compilers ok "${compilers#, }"
    say "file system" ok "$(stat -f -c %T "$WORK")"
}

# ---- doctor

doctor() {
    export LARDER_DIR="$WORK/doctor"
    mkdir -p "$LARDER_DIR"
    limit larder doctor > doctor.txt 2>&1
    code=$?
    cat doctor.txt
    problems=$(grep -c '^problem' doctor.txt)
    if [ $code = 0 ]; then
        say "doctor ($me)" ok "no problem"
    elif [ $code = 1 ] && [ "$problems" -gt 0 ]; then
        say "doctor ($me)" no "$problems × problem: $(grep '^problem' doctor.txt | head -n 1 | tr -s ' ' | cut -d' ' -f2-)"
    else
        failed "doctor ($me)" $code doctor doctor.txt
    fi
    say "doctor, ways to mount ($me)" ok "$(sed -n 's/^ok *via \([a-z-]*\) .*/\1/p' doctor.txt | tr '\n' ' ')"
    unset LARDER_DIR
}

# ---- the short project

# round NAME LARDER CC CXX TARGETS PREFIX...: builds at the same path and moves the outputs to NAME.
round() {
    name=$1 launcher=$2 cc=$3 cxx=$4 targets=${5:-$TARGETS}
    shift 5
    rm -rf "../$name"
    mkdir "../$name"
    # shellcheck disable=SC2086
    LARDER_LOG="$base/log.$name" limit "$@" make -s LARDER="$launcher" DEP="$dep" CC="$cc" CXX="$cxx" $targets > "../said.$name" 2>&1
    code=$?
    mv ./*.o ./*.a ./*.so ./*.d ./*.i program "../$name/" 2> /dev/null
    mv "../said.$name" "../$name/said"
    return $code
}

# project CHECK OBSERVER CC CXX [TARGETS [PREFIX...]]
project() {
    check=$1 observer=$2 cc=$3 cxx=$4 targets=$5
    [ $# -gt 5 ] && shift 5 || shift $#
    for program in "${cc%% *}" "${cxx%% *}"; do
        [ -z "$program" ] || command -v "$program" > /dev/null || { say "$check" untried "$program is not here"; return; }
    done
    base=$WORK/project
    dep=
    [ "$observer" = depfile ] && dep=-MD
    rm -rf "$base"
    mkdir -p "$base"
    cp -a "$CELL/project" "$base/tree"
    cd "$base/tree" || return
    sleep 0.2
    if ! round plain "" "$cc" "$cxx" "$targets" "$@"; then
        no_plain "$check" $code
        cd "$WORK"
        return
    fi
    export LARDER_DIR="$base/store" LARDER_OBSERVER="$observer"
    found=
    for name in cold warm again; do
        [ $name = again ] && [ "$hits" -ge "$commands" ] && break
        round $name larder "$cc" "$cxx" "$targets" "$@"
        code=$?
        cat "../log.$name" 2> /dev/null
        if [ $code != 0 ]; then
            failed "$check" $code "$name" "../$name/said"
            found=1
            break
        fi
        if ! diff -r "../plain" "../$name" > ../differs 2>&1; then
            say "$check" wrong "$name: $(wc -l < ../differs) lines of differences: $(head -n 1 ../differs)"
            found=1
            break
        fi
        commands=$(grep -c . "../log.$name")
        hits=$(hits_in "../log.$name")
        last=$name
    done
    if [ -z "$found" ]; then
        text="$hits of $commands"
        [ "$last" = again ] && text="$(hits_in ../log.warm), then $text"
        if [ "$hits" -ge "$commands" ] && [ "$commands" -gt 0 ]; then
            say "$check" ok "$text"
        elif [ "$observer" = depfile ] && [ "$hits" -gt 0 ]; then
            # Links and archives have no depfile.
            say "$check" ok "$text"
        else
            say "$check" missed "$text ($(why_in "../log.$last"))"
        fi
    fi
    unset LARDER_DIR LARDER_OBSERVER
    cd "$WORK"
}

# Every observer with the distribution's gcc and clang.
observers() {
    for pair in "gcc g++" "clang clang++"; do
        for observer in auto preload kernel depfile; do
            # shellcheck disable=SC2086
            project "${pair% *}, $observer ($me)" $observer $pair
        done
    done
}

# Every observer with gcc only, for slow machines.
observers_gcc() {
    for observer in auto preload kernel depfile; do
        project "gcc, $observer ($me)" $observer gcc g++
    done
    project "clang, auto ($me)" auto clang clang++
}

two_observers() {
    for observer in auto kernel; do
        project "gcc, $observer ($me)" $observer gcc g++
    done
}

short_project() {
    project "gcc, auto ($me)" auto gcc g++
    project "gcc, kernel ($me)" kernel gcc g++
    project "clang, auto ($me)" auto clang clang++
}

# Other installed versions of compilers, and other linkers.
compilers() {
    default=$(basename "$(readlink -f /usr/bin/gcc)" | sed 's/.*gcc-//')
    for file in /usr/bin/gcc-[0-9]*; do
        version=${file##*-}
        [ "$version" = "$default" ] || project "gcc $version, auto" auto "gcc-$version" "g++-$version"
        [ "$version" = "$default" ] || project "gcc $version, kernel" kernel "gcc-$version" "g++-$version"
    done
    default=$(basename "$(dirname "$(dirname "$(readlink -f /usr/bin/clang)")")" | sed 's/.*-//')
    for file in /usr/bin/clang-[0-9]*; do
        version=${file##*-}
        [ "$version" = "$default" ] || project "clang $version, auto" auto "clang-$version" "clang++-$version"
    done
    project "musl-gcc, auto" auto musl-gcc "" "libtext.so libtext.a whole.o"
    project "musl-gcc, kernel" kernel musl-gcc "" "libtext.so libtext.a whole.o"
    for linker in bfd gold lld mold; do
        if command -v ld.$linker > /dev/null; then
            project "ld.$linker by gcc, auto" auto "gcc -fuse-ld=$linker" "g++ -fuse-ld=$linker"
        else
            say "ld.$linker by gcc, auto" untried "ld.$linker is not here"
        fi
    done
}

# ---- programs that are not compilers

# one NAME COMMAND...: runs a command that writes `out`, plainly and by larder: a miss, a hit, and once
# more after a change of `in`.
one() {
    name=$1
    shift
    tried=$((tried + 1))
    for step in miss hit changed; do
        [ $step = changed ] && { echo "other text" > in; touch -d '1 hour ago' in; sleep 0.1; }
        rm -f out plain.out
        # Through a pipe: larder does not record `cat` into a file of this directory.
        { limit "$@" 2>&1; echo $? > code; } | cat > plain.said
        plain=$(cat code)
        mv out plain.out 2> /dev/null
        { LARDER_LOG=$base/log.$step limit larder run -- "$@" 2>&1; echo $? > code; } | cat > said
        code=$(cat code)
        if [ $code = 124 ] || [ $code = 137 ]; then
            hung="$hung $name"
            return
        fi
        if [ $code != $plain ] || ! cmp -s said plain.said || { [ -e plain.out ] && ! cmp -s out plain.out; }; then
            wrong="$wrong $name ($step: $(head -n 1 said))"
            return
        fi
    done
    right=$((right + 1))
    if [ "$(tail -n 1 "$base/log.hit" | grep -c ' hit: ')" = 1 ]; then
        hit=$((hit + 1))
    else
        nohit="$nohit $name"
        tail -n 1 "$base/log.hit"
    fi
}

# programs OBSERVER
programs() {
    check="programs, $1 ($me)"
    base=$WORK/programs
    rm -rf "$base"
    mkdir -p "$base/dir"
    cd "$base" || return
    export LARDER_DIR="$base/store" LARDER_OBSERVER="$1"
    tried=0 right=0 hit=0 wrong= nohit= lacks= hung=
    while read -r name cc words; do
        command -v "$cc" > /dev/null || { lacks="$lacks $name"; continue; }
        file=$CELL/program.c
        [ "$name" = rust ] && file=$CELL/programs/rust.a
        # shellcheck disable=SC2086
        $cc -O1 -w "$file" -o "$name" $words > said 2>&1 || { lacks="$lacks $name"; continue; }
        [ "$name" = setuid ] && chmod 4755 setuid
        echo text > in
        touch -d '2 hours ago' in "$name"
        sleep 0.1
        one "$name" "./$name" in dir out
    done << 'END'
dynamic gcc
libdl gcc -Wl,--no-as-needed -ldl
static gcc -static
static-pie gcc -static-pie
own-malloc gcc -DOWN_MALLOC
own-open gcc -DOWN_OPEN
setuid gcc
musl musl-gcc
musl-static musl-gcc -static
rust gcc -lpthread -ldl -lm -lgcc_s
END
    for name in rust-musl go; do
        cp "$CELL/programs/$name" . 2> said || { lacks="$lacks $name"; continue; }
        echo text > in
        touch -d '2 hours ago' in "$name"
        sleep 0.1
        one "$name" "./$name" in dir out
    done
    echo text > in
    touch -d '2 hours ago' in
    if command -v java > /dev/null && cp "$CELL/programs/Program.class" . 2> said; then
        touch -d '2 hours ago' Program.class
        one java java -cp . Program in dir out
    else
        lacks="$lacks java"
    fi
    echo text > in
    touch -d '2 hours ago' in
    one sh sh -c 'test -e in || echo not there; test -e absent || cp in out'
    one cat cat in
    one awk awk '{ print "line " $0 }' in
    command -v python3 > /dev/null && one python3 python3 -c 'print(open("in").read())'
    command -v perl > /dev/null && one perl perl -ne 'print uc' in
    rest="${nohit:+; no hit:$nohit}${lacks:+; cannot be built here:$lacks}"
    if [ -n "$hung" ]; then
        say "$check" hung "$hung"
    elif [ -n "$wrong" ]; then
        say "$check" wrong "$((tried - right)) of $tried:$wrong"
    elif [ "$hit" = "$tried" ]; then
        say "$check" ok "$hit of $tried$rest"
    else
        say "$check" missed "$hit of $tried$rest"
    fi
    unset LARDER_DIR LARDER_OBSERVER
    cd "$WORK"
}

# ---- system calls that are refused

# The numbers are those of x86-64. A kernel before 5.5 also refuses a flag, which this cannot show.
refused() {
    if [ "$(uname -m)" != x86_64 ] || ! gcc -O1 -w "$CELL/refuse.c" -o "$WORK/refuse" 2> said; then
        say "refused calls" untried "the program that refuses calls cannot be built"
        return
    fi
    while read -r what error numbers; do
        refusals=
        for number in $numbers; do refusals="$refusals $number=$error"; done
        # shellcheck disable=SC2086
        project "refused: $(echo "$what" | tr _ ' ') ($me)" auto gcc g++ "libtext.a main.o" "$WORK/refuse" $refusals --
    done << 'END'
nothing_(control) 38 900
openat2,_ENOSYS 38 437
openat2,_EPERM 1 437
statx 38 332
close_range 38 436
clone3 38 435
memfd_create 38 319
seccomp,_EPERM 1 317
pidfd_open 38 434
faccessat2 38 439
process_vm_readv,_EPERM 1 310
ptrace,_EPERM 1 101
getrandom 38 318
all_newer_than_Linux_5.4 38 436-470
all_newer_than_Linux_4.18 38 334-470
Docker's_profile_of_2019,_EPERM 1 434-470 155 165 166 272 308 304 310 311 298 321 323 250 248 249
END
}

# ---- settings of the kernel

# setting CHECK FILE VALUE PART: sets the value and runs a part as the ordinary user.
setting() {
    if [ -w "$2" ] && echo "$3" > "$2" 2> /dev/null; then
        as_user "setting:$1"
    else
        say "$1" untried "this kernel has no $2 that can be set"
    fi
}

settings() {
    scope=/proc/sys/kernel/yama/ptrace_scope
    users=/proc/sys/user/max_user_namespaces
    setting "ptrace_scope 0, gcc (u)" $scope 0
    setting "ptrace_scope 1, gcc (u)" $scope 1
    setting "ptrace_scope 2, gcc (u)" $scope 2
    before=$(cat $users)
    setting "no user namespaces, image run (u)" $users 0
    echo "$before" > $users
    if mount -o remount,hidepid=2 /proc 2> /dev/null; then
        as_user "setting:hidepid=2, gcc (u)"
        mount -o remount,hidepid=0 /proc
    else
        say "hidepid=2, gcc (u)" untried "/proc cannot be mounted so"
    fi
    # This comes last, because it cannot be undone.
    setting "ptrace_scope 3, gcc (u)" $scope 3
}

# The part that an ordinary user runs with such a setting.
with_setting() {
    case $1 in
    *image*) image_run_auto "$1" ;;
    *) project "$1" auto gcc g++ ;;
    esac
}

# ---- a store that may only be read

sandbox() {
    check="read-only store, larderd outside ($me)"
    if ! unshare -U -r -m -p -f -n --mount-proc true 2> said; then
        say "$check" untried "no user namespace here: $(head -n 1 said)"
        return
    fi
    base=$WORK/sandbox
    rm -rf "$base"
    mkdir -p "$base/tree"
    cd "$base/tree" || return
    for n in 1 2 3 4 5 6; do
        echo "#include <stdio.h>
int f$n(void) { return puts(\"$n\"); }" > f$n.c
    done
    touch -d '1 hour ago' ./*.c
    sleep 0.2
    for n in 1 2 3 4 5 6; do gcc -g -c f$n.c -o f$n.plain; done
    export LARDER_DIR="$base/store"
    mkdir -p "$LARDER_DIR"
    limit larder stats > /dev/null
    state=ok text=
    for name in cold warm; do
        limit larder daemon start > said 2>&1
        code=$?
        [ $code = 0 ] || { failed "$check" $code "daemon start" said; break; }
        rm -f ./*.o
        LARDER_LOG=$base/log.$name limit unshare -U -r -m -p -f -n --mount-proc sh -ec '
            mount --bind "$LARDER_DIR" "$LARDER_DIR"
            mount -o remount,bind,ro "$LARDER_DIR"
            ! touch "$LARDER_DIR/x" 2> /dev/null
            for n in 1 2 3 4 5 6; do larder gcc -g -c f$n.c -o f$n.o; done' > said 2>&1
        code=$?
        cat "$base/log.$name"
        [ $code = 0 ] || { failed "$check" $code "$name" said; break; }
        for n in 1 2 3 4 5 6; do cmp f$n.o f$n.plain || code=1; done > said 2>&1
        [ $code = 0 ] || { failed "$check" $code "$name" said; break; }
        # Waits until the records that were handed over are written.
        limit larder daemon stop > said 2>&1
        code=$?
        [ $code = 0 ] || { failed "$check" $code "daemon stop" said; break; }
    done
    if [ $code = 0 ]; then
        handed=$(grep -c 'handed over' "$base/log.cold")
        hits=$(hits_in "$base/log.warm")
        [ "$handed/$hits" = 6/6 ] || state=missed text=" ($(why_in "$base/log.cold"))"
        say "$check" $state "$handed of 6 handed over, $hits of 6 hits$text"
    fi
    unset LARDER_DIR
    cd "$WORK"
}

# ---- records

record() {
    dep=
    check="record -- make ($me)"
    base=$WORK/record
    rm -rf "$base"
    mkdir -p "$base"
    cp -a "$CELL/project" "$base/tree"
    cd "$base/tree" || return
    sleep 0.2
    if ! round plain "" gcc g++ ""; then
        no_plain "$check" $code
        return
    fi
    export LARDER_DIR="$base/store" LARDER_RECORD_DIR="$base/records"
    # shellcheck disable=SC2086
    # This does not use `round`, because that starts `timeout`, and make must be the recorded command.
    mkdir ../cold
    LARDER_LOG=$base/log.cold limit larder record --name one -- make -s LARDER=larder $TARGETS > ../said 2>&1
    code=$?
    mv ./*.o ./*.a ./*.so ./*.d ./*.i program ../cold/ 2> /dev/null
    cp ../plain/said ../cold/said
    if [ $code != 0 ]; then
        failed "$check" $code record ../said
    elif ! diff -r ../plain ../cold > ../differs 2>&1; then
        say "$check" wrong "$(head -n 1 ../differs)"
    elif ! limit larder report last -o ../page.html > ../said 2>&1 || ! limit larder explain --last-build >> ../said 2>&1; then
        say "$check" wrong "report or explain: $(tail -n 1 ../said)"
    else
        cat ../said
        processes=$(cat ../records/*/runs/*/events.jsonl 2> /dev/null | grep -c .)
        actions=$(cat ../records/*/runs/*/actions.jsonl 2> /dev/null | grep -c .)
        round warm larder gcc g++ ""
        hits=$(hits_in ../log.warm)
        state=ok
        [ "$hits" -ge "$(grep -c . ../log.warm)" ] && [ "$processes" -gt 20 ] && [ "$actions" -gt 0 ] || state=missed
        say "$check" $state "$actions actions, $processes events; then $hits of $(grep -c . ../log.warm) hits"
    fi
    unset LARDER_DIR LARDER_RECORD_DIR
    cd "$WORK"
}

# `larder run -- make`, three times.
run_make() {
    dep=
    check="run -- make ($me)"
    base=$WORK/whole
    rm -rf "$base"
    mkdir -p "$base"
    cp -a "$CELL/project" "$base/tree"
    cd "$base/tree" || return
    sleep 0.2
    round plain "" gcc g++ "" || { no_plain "$check" $code; return; }
    export LARDER_DIR="$base/store"
    for name in cold warm; do
        mkdir "../$name"
        LARDER_LOG=$base/log.$name limit larder run -- make -s $TARGETS > ../said 2>&1
        code=$?
        mv ./*.o ./*.a ./*.so ./*.d ./*.i program "../$name/" 2> /dev/null
        mv ../said "../$name/said"
        [ $code = 0 ] || { failed "$check" $code "$name" "../$name/said"; break; }
        if ! diff -r ../plain "../$name" > ../differs 2>&1; then
            say "$check" wrong "$name: $(head -n 1 ../differs)"
            code=1
            break
        fi
    done
    if [ $code = 0 ]; then
        if [ "$(hits_in ../log.warm)" = 1 ]; then
            say "$check" ok "recorded, then a hit"
        else
            say "$check" missed "$(why_in ../log.cold)"
        fi
    fi
    unset LARDER_DIR
    cd "$WORK"
}

# ---- images

# Prints names, kinds, modes, links and times of a tree. Times are in seconds, because squashfs has no
# finer ones.
looks() {
    (cd "$1" && find . ! -type d -printf '%P %y %m %n %l %TY%Tm%Td%TH%TM\n' -o -type d -printf '%P %y %m\n' | LC_ALL=C sort)
}

same() {
    diff -r --no-dereference "$1" "$2" > "$base/differs" 2>&1 || return 1
    looks "$1" > "$base/looks.1"
    looks "$2" > "$base/looks.2"
    diff "$base/looks.1" "$base/looks.2" > "$base/differs" 2>&1
}

is_mounted() {
    grep -q " $base/$1 " /proc/self/mountinfo
}

make_tree() {
    mkdir -p tree/empty
    n=0
    while [ $n -lt "$FILES" ]; do
        [ $((n % 50)) = 0 ] && dir=tree/dir$((n / 500))/sub$((n / 50)) && mkdir -p $dir
        printf '%s: a file of an image, %s%s%s\n' $n $dir $n $n > $dir/file$n
        n=$((n + 1))
    done
    head -c 3000000 /dev/urandom > tree/large
    ln -s dir0/sub0/file1 tree/link
    ln tree/large tree/hard
    chmod 755 tree/dir0/sub0/file0
    chmod 400 tree/dir0/sub0/file2
    find tree -exec touch -h -d '2024-05-06 07:08:09' {} +
}

image_begin() {
    base=$WORK/images
    rm -rf "$base"
    mkdir -p "$base"
    cd "$base" || return 1
    export LARDER_DIR="$base/store"
    make_tree
    cp -a tree pristine
    limit larder image save --key k tree > said 2>&1
    code=$?
    [ $code = 0 ] && return 0
    failed "image save ($me)" $code save said
    return 1
}

milliseconds() {
    echo $(($(date +%s%N) / 1000000))
}

# image_mount WAY
image_mount() {
    check="image mount, $1 ($me)"
    via="--via $1"
    [ "$1" = best ] && via=
    rm -rf m
    begin=$(milliseconds)
    # shellcheck disable=SC2086
    limit larder image mount $via --key k --json m > json 2> said
    code=$?
    cat m/dir0/sub0/file1 > /dev/null 2>&1
    took=$(($(milliseconds) - begin))
    cat json said
    got=$(sed -n 's/^ *"via": "\([a-z]*\)".*/\1/p' json)
    if [ $code = 124 ] || [ $code = 137 ]; then
        failed "$check" $code mount said
    elif ! is_mounted m && { [ "$1" != best ] || [ "$got" != unpack ]; }; then
        say "$check" no "$(sed 's/^larder: //; s/cannot be mounted via `[a-z]*`: //' said | head -n 1)"
    elif ! same pristine m; then
        say "$check" wrong "$got: $(head -n 1 differs)"
    elif ! echo new > m/dir0/sub0/file1 || ! mv m/dir0/sub0/file3 m/dir0/moved || ! rm m/large; then
        say "$check" wrong "$got: cannot be written to"
    else
        limit larder image unmount m > said 2>&1
        code=$?
        if [ $code != 0 ] || is_mounted m; then
            say "$check" wrong "$got: cannot be unmounted: $(head -n 1 said)"
        elif ! same pristine tree; then
            say "$check" wrong "$got: the saved tree was changed: $(head -n 1 differs)"
        elif [ "$got" = unpack ]; then
            say "$check" no "unpacked: $(sed -n 's/^ *"passed_over": "\(.*\)".*/\1/p' json | sed 's/cannot be mounted via `[a-z]*`: //')"
        elif limit larder image fsck > /dev/null 2>&1 || limit larder fsck > said 2>&1; then
            say "$check" ok "$([ "$1" = best ] && echo "$got, ")$took ms"
        else
            say "$check" wrong "$got: fsck: $(tail -n 1 said)"
        fi
    fi
    is_mounted m && umount -l m
    grep "$base" /proc/self/mountinfo
}

# image_run WAY [CHECK]
image_run() {
    check=${2:-image run, $1 ($me)}
    via="--via $1"
    [ "$1" = best ] && via=
    rm -rf m
    begin=$(milliseconds)
    # shellcheck disable=SC2086
    limit larder image run $via --key k m -- sh -c 'echo $(($(date +%s%N) / 1000000)) > usable
        grep " $PWD/m " /proc/self/mountinfo > mounted
        diff -r --no-dereference pristine m > differs && echo new > m/dir0/sub0/file1 && rm m/large' > said 2>&1
    code=$?
    took=$(($(cat usable 2> /dev/null || milliseconds) - begin))
    cat said mounted
    # The type of the overlay is not enough, so larder says which file system is below it.
    if [ $code = 124 ] || [ $code = 137 ]; then
        failed "$check" $code run said
    elif ! [ -s mounted ] && [ "$1" != best ]; then
        say "$check" no "$(sed 's/^larder: //' said | head -n 1)"
    elif [ $code != 0 ]; then
        say "$check" wrong "$(cat differs said | head -n 1)"
    elif ! same pristine tree; then
        say "$check" wrong "the saved tree was changed: $(head -n 1 differs)"
    elif ! [ -s mounted ]; then
        say "$check" no "unpacked: $(sed 's/^larder: //' said | head -n 1)"
    else
        way=$(sed -n 's/^larder: exact: .*: by \([a-z]*\).*/\1/p' said)
        say "$check" ok "$([ "$1" = best ] && echo "${way:-mounted}, ")$took ms"
    fi
    grep "$base" /proc/self/mountinfo
}

image_run_auto() {
    image_begin && image_run best "$1"
    unset LARDER_DIR
    cd "$WORK"
}

images() {
    image_begin || return
    rm -rf m
    limit larder image restore --key k m > said 2>&1
    code=$?
    if [ $code != 0 ]; then
        failed "image save, restore ($me)" $code restore said
    elif same pristine m; then
        say "image save, restore ($me)" ok "$(find m | wc -l) names, the same"
    else
        say "image save, restore ($me)" wrong "$(head -n 1 differs)"
    fi
    if [ "$me" = root ]; then
        for way in best lazy mount lazy-fuse squashfs fuse; do image_mount $way; done
    fi
    for way in best lazy mount lazy-fuse squashfs fuse; do image_run $way; done
    unset LARDER_DIR
    cd "$WORK"
    rm -rf "$base" 2> /dev/null
}

# ---- the torture suite

torture() {
    old=$IFS
    IFS=';'
    for words in $TORTURE; do
        IFS=$old
        check="torture,${words%%|*}"
        words=${words#*|}
        # shellcheck disable=SC2086
        timeout -k 10 "$TORTURE_LIMIT" larder-torture --bin "$CELL/bin/larder" --work "$TMPDIR" $words > torture.txt 2>&1 < /dev/null
        code=$?
        cat torture.txt
        verdict=$(sed -n 's/ expected hits;.*/ hits/p' torture.txt | tail -n 1)
        cases=$(sed -n 's/^larder: \([0-9]*\) cases.*/\1/p' torture.txt | tail -n 1)
        skipped=$(sed -n 's/^skipped, [^:]*: //p' torture.txt | wc -w)
        unknown=$(sed -n 's/.*known misses, \([0-9]*\) not known.*/\1/p' torture.txt | tail -n 1)
        names=$(sed -n 's/^WRONG *\([^ ]*\) .*/\1/p' torture.txt | sort -u | head -n 3 | tr '\n' ' ')
        text="$cases cases, $verdict, $skipped skipped"
        if [ $code = 124 ] || [ $code = 137 ]; then
            say "$check" hung "did not end within $TORTURE_LIMIT s"
        elif [ -z "$verdict" ]; then
            say "$check" wrong "exit code $code: $(tail -n 1 torture.txt)"
        elif [ "${verdict%% *}" != 0 ]; then
            say "$check" wrong "$text: $names"
        elif [ "$unknown" != 0 ]; then
            say "$check" missed "$text, $unknown of the misses not known"
        else
            say "$check" ok "$text"
        fi
    done
    IFS=$old
}

# ---- parts

# Runs parts as the user `u`, which has a directory of its own.
as_user() {
    mkdir -p "$CELL/u"
    chown u: "$CELL/u"
    for part; do
        if command -v setpriv > /dev/null; then
            env WORK="$CELL/u" USER=u setpriv --reuid u --regid u --clear-groups sh "$CELL/inside.sh" "$part"
        else
            env WORK="$CELL/u" USER=u su u -s /bin/sh -c "sh '$CELL/inside.sh' '$part'"
        fi
    done
}

for part; do
    case $part in
    u:*) as_user "${part#u:}" ;;
    setting:*) with_setting "${part#setting:}" ;;
    programs:*) programs "${part#*:}" ;;
    *) $part ;;
    esac
done
