# Makes the content that `probe.py` works on, in the working directory.
set -eu
mkdir -p dir/inner swap-a swap-b dir-kept watched again
echo inner >dir/inner/file
echo a >swap-a/in-a
echo b >swap-b/in-b
echo linked >link-a
ln link-a link-b
for name in plain kept moded early watched-file dir-kept/file watched/old watched/gone again/file; do
    echo "$name" >"$name"
done
ln -s plain symlink
for name in pages mapped mapped-early; do
    head -c 32768 /dev/zero | tr '\0' x >"$name"
done
