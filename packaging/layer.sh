# Puts a writable layer on a clean root of Debian. Other scripts here read this file with `.`, in a
# mount namespace of their own, after they have set:
#
#   root      what debootstrap made; it stays as it is
#   packages  what `cargo xtask dist` made, at /packages in the layer
#   own       a directory for the layer, whose root is then `$layer/root`
layer=$own/layer
rm -rf "$layer"
mkdir -p "$layer/upper" "$layer/work" "$layer/root"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$layer/upper,workdir=$layer/work" "$layer/root" || {
    echo "skipped: no overlay can be mounted on $layer"
    exit 0
}
mount -t proc proc "$layer/root/proc"
mount --rbind /dev "$layer/root/dev"
mount -t tmpfs tmpfs "$layer/root/tmp"
mkdir -p "$layer/root/packages" "$layer/root/home/user"
mount --bind "$packages" "$layer/root/packages"

# Runs shell text in the layer, for a user whose home directory is /home/user.
inside() {
    chroot "$layer/root" /usr/bin/env -i HOME=/home/user PATH="$path" LC_ALL=C.UTF-8 sh -eu -c "$1"
}
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
