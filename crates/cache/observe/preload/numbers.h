/* The numbers of the system calls that take a path or the address of a peer, list a directory or
 * start a process. This is the body of a table in jump.c. */
#ifdef __NR_open
    __NR_open,
#endif
#ifdef __NR_stat
    __NR_stat,
#endif
#ifdef __NR_lstat
    __NR_lstat,
#endif
#ifdef __NR_access
    __NR_access,
#endif
#ifdef __NR_rename
    __NR_rename,
#endif
#ifdef __NR_mkdir
    __NR_mkdir,
#endif
#ifdef __NR_rmdir
    __NR_rmdir,
#endif
#ifdef __NR_creat
    __NR_creat,
#endif
#ifdef __NR_link
    __NR_link,
#endif
#ifdef __NR_unlink
    __NR_unlink,
#endif
#ifdef __NR_symlink
    __NR_symlink,
#endif
#ifdef __NR_readlink
    __NR_readlink,
#endif
#ifdef __NR_chmod
    __NR_chmod,
#endif
#ifdef __NR_chown
    __NR_chown,
#endif
#ifdef __NR_lchown
    __NR_lchown,
#endif
#ifdef __NR_utime
    __NR_utime,
#endif
#ifdef __NR_utimes
    __NR_utimes,
#endif
#ifdef __NR_mknod
    __NR_mknod,
#endif
#ifdef __NR_getdents
    __NR_getdents,
#endif
#ifdef __NR_fork
    __NR_fork,
#endif
#ifdef __NR_vfork
    __NR_vfork,
#endif
#ifdef __NR_chdir
    __NR_chdir,
#endif
#ifdef __NR_openat
    __NR_openat,
#endif
#ifdef __NR_openat2
    __NR_openat2,
#endif
#ifdef __NR_newfstatat
    __NR_newfstatat,
#endif
#ifdef __NR_statx
    __NR_statx,
#endif
#ifdef __NR_faccessat
    __NR_faccessat,
#endif
#ifdef __NR_faccessat2
    __NR_faccessat2,
#endif
#ifdef __NR_renameat
    __NR_renameat,
#endif
#ifdef __NR_renameat2
    __NR_renameat2,
#endif
#ifdef __NR_mkdirat
    __NR_mkdirat,
#endif
#ifdef __NR_unlinkat
    __NR_unlinkat,
#endif
#ifdef __NR_linkat
    __NR_linkat,
#endif
#ifdef __NR_symlinkat
    __NR_symlinkat,
#endif
#ifdef __NR_readlinkat
    __NR_readlinkat,
#endif
#ifdef __NR_fchmodat
    __NR_fchmodat,
#endif
#ifdef __NR_fchmodat2
    __NR_fchmodat2,
#endif
#ifdef __NR_fchownat
    __NR_fchownat,
#endif
#ifdef __NR_utimensat
    __NR_utimensat,
#endif
#ifdef __NR_futimesat
    __NR_futimesat,
#endif
#ifdef __NR_mknodat
    __NR_mknodat,
#endif
#ifdef __NR_getdents64
    __NR_getdents64,
#endif
#ifdef __NR_execve
    __NR_execve,
#endif
#ifdef __NR_execveat
    __NR_execveat,
#endif
#ifdef __NR_clone
    __NR_clone,
#endif
#ifdef __NR_clone3
    __NR_clone3,
#endif
#ifdef __NR_truncate
    __NR_truncate,
#endif
#ifdef __NR_setxattr
    __NR_setxattr,
#endif
#ifdef __NR_lsetxattr
    __NR_lsetxattr,
#endif
#ifdef __NR_removexattr
    __NR_removexattr,
#endif
#ifdef __NR_lremovexattr
    __NR_lremovexattr,
#endif
#ifdef __NR_getxattr
    __NR_getxattr,
#endif
#ifdef __NR_lgetxattr
    __NR_lgetxattr,
#endif
#ifdef __NR_listxattr
    __NR_listxattr,
#endif
#ifdef __NR_llistxattr
    __NR_llistxattr,
#endif
#ifdef __NR_statfs
    __NR_statfs,
#endif
#ifdef __NR_chroot
    __NR_chroot,
#endif
#ifdef __NR_pivot_root
    __NR_pivot_root,
#endif
#ifdef __NR_mount
    __NR_mount,
#endif
#ifdef __NR_umount2
    __NR_umount2,
#endif
#ifdef __NR_unshare
    __NR_unshare,
#endif
#ifdef __NR_setns
    __NR_setns,
#endif
#ifdef __NR_move_mount
    __NR_move_mount,
#endif
#ifdef __NR_open_tree
    __NR_open_tree,
#endif
#ifdef __NR_name_to_handle_at
    __NR_name_to_handle_at,
#endif
#ifdef __NR_open_by_handle_at
    __NR_open_by_handle_at,
#endif
#ifdef __NR_fchdir
    __NR_fchdir,
#endif
#ifdef __NR_io_uring_setup
    __NR_io_uring_setup,
#endif
#ifdef __NR_connect
    __NR_connect,
#endif
