//! A node: a remote with images, a broker, and the plugin, each a process of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use larder_csi::proto::node_client::NodeClient;
use larder_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
use larder_csi::proto::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability};
use tokio::net::UnixStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// How long a process may take to listen.
const PATIENCE: Duration = Duration::from_secs(120);
/// The key of the image that every node has.
pub(crate) const KEY: &str = "deps-1";

pub(crate) struct Node {
    directory: tempfile::TempDir,
    options: Vec<String>,
    broker: Option<Child>,
    plugin: Option<Child>,
}

impl Node {
    /// Starts a node whose plugin has these options. The remote has an image with the key `KEY`.
    pub(crate) fn new(options: &[&str]) -> Node {
        let directory = tempfile::tempdir().expect("makes a directory");
        // The process that finds images has a user of its own.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("opens it to others");
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut node = Node { directory, options, broker: None, plugin: None };
        for made in ["deps/a/b", "deps/empty", "kubelet", "remote"] {
            fs::create_dir_all(node.path(made)).expect("makes a directory");
        }
        fs::set_permissions(node.path("remote"), Permissions::from_mode(0o777)).expect("opens it to others");
        for (name, bytes) in [("deps/a/b/x.js", "x"), ("deps/a/index.js", "a"), ("deps/top", "top")] {
            fs::write(node.path(name), bytes).expect("writes");
        }
        node.save(KEY, "deps");
        node.start_broker();
        node.start_plugin();
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("is UTF-8").to_owned()
    }

    fn command(&self, program: &Path, store: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", self.path("")).env("LARDER_DIR", self.path(store));
        command.env("LARDER_REMOTE", format!("file://{}", self.text("remote"))).stdin(Stdio::null());
        command
    }

    /// Saves a directory under a key, as another machine does.
    pub(crate) fn save(&self, key: &str, directory: &str) {
        let mut save = self.command(larder_testkit::larder(), "elsewhere");
        let saved =
            save.current_dir(self.path("")).args(["image", "save", "--strict", "--key", key, directory]).status();
        assert!(saved.expect("starts").success());
        let mut open = Command::new("chmod");
        assert!(open.arg("-R").arg("a+rX").arg(self.path("remote")).status().expect("starts").success());
    }

    pub(crate) fn start_broker(&mut self) {
        let socket = self.text("broker.sock");
        let mut broker = self.command(larder_testkit::larder(), "broker");
        broker.args(["image", "broker", "--mounts-max", "0", "--socket", &socket]);
        self.broker = Some(listening(broker, &self.path("broker.sock")));
    }

    pub(crate) fn start_plugin(&mut self) {
        let mut plugin = self.command(Path::new(env!("CARGO_BIN_EXE_larder-csi")), "unused");
        plugin.arg("--larder").arg(larder_testkit::larder()).args(["--node", "node-1"]);
        for (option, path) in
            [("endpoint", "csi.sock"), ("broker", "broker.sock"), ("state", "state"), ("targets", "kubelet")]
        {
            plugin.arg(format!("--{option}")).arg(self.path(path));
        }
        plugin.args(&self.options);
        self.plugin = Some(listening(plugin, &self.path("csi.sock")));
    }

    pub(crate) fn kill_plugin(&mut self) {
        kill(&mut self.plugin);
    }

    pub(crate) fn kill_broker(&mut self) {
        kill(&mut self.broker);
    }

    /// Returns the path at which a volume is mounted, whose parent kubelet makes.
    pub(crate) fn target(&self, volume: &str) -> PathBuf {
        let pod = self.path("kubelet").join(volume);
        fs::create_dir_all(&pod).expect("makes a directory");
        pod.join("mount")
    }

    /// Returns a client of the plugin. Called in a runtime, as by `wait`.
    pub(crate) fn client(&self) -> NodeClient<Channel> {
        client(self.path("csi.sock"))
    }

    /// Asks for a volume, as kubelet does for a pod in the namespace `ci`.
    pub(crate) fn asked(&self, volume: &str, attributes: &[(&str, &str)]) -> NodePublishVolumeRequest {
        let of_kubelet = [("csi.storage.k8s.io/ephemeral", "true"), ("csi.storage.k8s.io/pod.namespace", "ci")];
        let all = of_kubelet.iter().chain(attributes).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        NodePublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: self.target(volume).to_str().expect("is UTF-8").to_owned(),
            volume_capability: Some(VolumeCapability {
                access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            volume_context: all.collect(),
            ..Default::default()
        }
    }

    pub(crate) fn publish(&self, volume: &str, attributes: &[(&str, &str)]) -> Result<PathBuf, Status> {
        let asked = self.asked(volume, attributes);
        wait(async { self.client().node_publish_volume(asked).await }).map(|_| self.target(volume))
    }

    pub(crate) fn unpublish(&self, volume: &str) {
        let target_path = self.target(volume).to_str().expect("is UTF-8").to_owned();
        let asked = NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path };
        wait(async { self.client().node_unpublish_volume(asked).await }).expect("is unmounted");
        assert!(!self.target(volume).exists(), "the target of {volume} is left");
    }

    /// Fails if there is a mount, a loop device or a file of a volume.
    pub(crate) fn has_nothing_left(&self) {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("reads");
        let left: Vec<&str> = ["kubelet", "state"].iter().flat_map(|name| below(&mounts, &self.text(name))).collect();
        assert!(left.is_empty(), "mounts are left: {left:?}");
        let volumes = fs::read_dir(self.path("state/volumes")).expect("lists").count();
        assert_eq!(volumes, 0, "{volumes} volumes are left in the state directory");
        let devices = loop_devices(&self.text("state"));
        assert!(devices.is_empty(), "loop devices are left: {devices:?}");
    }
}

fn below<'m>(mounts: &'m str, directory: &str) -> Vec<&'m str> {
    mounts.lines().filter(|line| line.contains(directory)).collect()
}

/// Returns the files of loop devices below a directory. The kernel may take a moment to let go of one.
fn loop_devices(directory: &str) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
        let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
        let found: Vec<String> = files.filter(|file| file.starts_with(directory)).collect();
        if found.is_empty() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        kill(&mut self.plugin);
        kill(&mut self.broker);
        // If a test failed, so that the directory can be removed.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for line in below(&mounts, &self.text("kubelet")).iter().chain(&below(&mounts, &self.text("state"))) {
            let place = line.split(' ').nth(1).unwrap_or_default();
            let _ = larder_sys::open_place(Path::new(place)).and_then(larder_sys::unmount);
        }
    }
}

/// Returns a client of the plugin that listens on this socket. Called in a runtime.
pub(crate) fn client(socket: PathBuf) -> NodeClient<Channel> {
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    NodeClient::new(Endpoint::from_static("http://node").connect_with_connector_lazy(connect))
}

/// Starts a process and waits until it listens on its socket.
fn listening(mut command: Command, socket: &Path) -> Child {
    let mut child = command.spawn().expect("starts");
    let until = Instant::now() + PATIENCE;
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(child.try_wait().expect("is ours").is_none(), "{command:?} ended");
        assert!(Instant::now() < until, "{command:?} does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn kill(process: &mut Option<Child>) {
    if let Some(mut process) = process.take() {
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// Runs an asynchronous call to its end.
pub(crate) fn wait<T>(call: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
    runtime.block_on(call)
}
