//! Linux. Each module's documentation says what it is for.

mod bytelock;
mod clock;
mod closing;
mod confine;
mod copy;
mod cpu_affinity;
mod dir;
mod features;
mod files;
mod filter;
mod follow;
mod futex;
mod loopback;
mod machine;
mod map;
#[cfg(target_arch = "x86_64")]
mod memcpy;
mod memory_file;
mod mount;
mod namespace;
mod newer;
mod notify;
mod poll;
mod process;
mod refused;
mod relay;
mod remove;
mod sched_policy;
mod seccomp_spawn;
mod signals;
mod socket;
mod start;
mod stdin;
mod stop;
mod survivors;
mod terminal;
mod terminal_input;
mod thread;
mod trace;
mod user;

pub use bytelock::{LOCKED_BYTES_MAX, byte_locked_by, bytes_locked_by, try_lock_byte, unlock_byte, unlock_bytes};
pub use clock::{now_coarse_ns, now_ms, ticks, ticks_per_second};
pub use confine::{Limits, enter_root, give_up_rights, limit_ourselves, refuse_calls, restrict_mount};
pub use copy::copy_bytes;
pub use dir::Dir;
pub use features::processor_features;
pub use files::{
    Opening, as_path, boot_id, file_trust, fstat, has_attributes, has_writers, is_open_for_writing, is_write_locked,
    lstat, may_access, may_be_barred, may_make_in, may_write, open, own_ids, own_program, random_u64, read_at_most,
    read_rest_at_most, read_sized, real_path_of, rename_new, standard_stat, stat, times_are_multigrain, try_write_lock,
    volatile_path, write_lock,
};
pub use filter::{ARCHITECTURE, FilterStep};
pub use follow::{Beside, Did, Followed, try_following};
pub use loopback::{loop_device, writable_loop_device};
pub use machine::{FreeMemory, any_busy_below, free_memory, is_frozen, make_room, processors, resident_below_kb};
pub use map::Words;
pub use memory_file::{growing_memory_file, memory_file, seal, sealed_memory_file};
pub use mount::{
    MountAttributes, MountNumber, MountRefused, MountValue, SeenMount, clone_mount, clone_mounts, house_mount,
    in_lasting_mounts, in_private_mounts, is_mount_root, knows_mount_option, mount_number, mount_place, new_mount,
    open_directory, open_place, own_mounts, place_mount, seen_mounts, set_mount_attributes, set_mount_owners, unmount,
};
pub use namespace::{
    OwnerRange, in_mount_namespace, is_of_first_users, is_of_other_users, kill_process, lead_session,
    lending_mount_rights, may_mount, mounts_of, open_process, own_namespaces, owners_namespace, peer_may_mount,
    peer_process, process_ended, process_number,
};
pub use notify::{
    Answered, Attendant, Listener, Notification, effective_group, is_thread_of, link_target, read_memory,
    signal_that_ended,
};
pub use process::{
    Child, ChildEnd, Usage, Use, address_space_is_limited, allowed_processors, ancestors, become_subreaper,
    build_of_ours, busiest_stranger, children_left, die_by, effective_user, end_process, environment_oddities, exec,
    exec_with, file_size_is_limited, host_field, inherited, limits_and_rights, more_descriptors_are_open,
    out_of_the_way, parent_process_id, process_id, process_state, processor_is_free, signals_and_niceness, sockets,
    umask, umask_beside_threads, usage_of_children, usage_of_ourselves, wait_with_usage, wanted_processor_ns,
    wanting_to_run,
};
pub use refused::{calls_may_be_refused, refused_calls, sandbox};
pub use relay::{RelayEnd, Rival, Rivalry, Stream, can_wait_for_streams, relay, relay_apart, relay_for};
pub use remove::{remove_tree, remove_tree_at};
pub use sched_policy::{SchedPolicy, answer_promptly, is_lowered, lower_thread, would_starve};
pub use seccomp_spawn::{spawn_attended, try_attending};
pub use signals::SignalForwarding;
pub use socket::{
    Channel, Door, MESSAGE_DESCRIPTORS_MAX, Peer, close_others, keep_to_ourselves, own_descriptors, passed_file,
    raise_descriptor_limit,
};
pub use start::{spawn, spawn_apart, spawn_bound, spawn_bound_to, spawn_job};
pub use stdin::{
    Input, end_standard_input, standard_input, standard_input_is_terminal, standard_input_left,
    standard_input_modified, take_standard_input,
};
pub use stop::end_descendants;
pub use survivors::{Survivors, survivors};
pub use terminal::{
    PseudoTerminal, TerminalSize, controlling_terminal_size, is_odd_output, pipe, standard_descriptors_open,
    standard_input_size, standard_outputs,
};
pub use terminal_input::{TerminalWatch, standard_input_awaits_typing, standard_input_settings};
pub(crate) use thread::thread_local_address;
pub use trace::{Start, Step, Tracer, spawn_traced, spawn_untraced};
pub use user::{home_of_user, shell_of_user};
