//! The services Identity and Node of the Container Storage Interface, on a Unix socket.
//!
//! Unaware of: how a volume is mounted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::attributes::{Rules, Wanted};
use crate::locate::{Finder, Located};
use crate::proto::identity_server::{Identity, IdentityServer};
use crate::proto::node_server::{Node, NodeServer};
use crate::proto::node_service_capability::{Rpc, Type as NodeType, rpc};
use crate::proto::volume_capability::AccessType;
use crate::proto::volume_usage::Unit;
use crate::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse, ProbeRequest, ProbeResponse, VolumeCapability, VolumeUsage,
};
use crate::volumes::{TargetState, Turn, Volumes};

/// The name by which a CSIDriver and the volumes of pods name the plugin.
const NAME: &str = "larder.csi";
/// The most volumes that are mounted or unmounted at once. A broker refuses a user with more than 64
/// requests.
const AT_ONCE_MAX: usize = 16;

type Answer<T> = Result<Response<T>, Status>;

/// Serves on a socket until SIGTERM or SIGINT. Mounted volumes stay. Fails if the socket cannot be
/// used.
pub async fn serve(socket: &Path, node: String, volumes: Arc<Volumes>, finder: Finder, rules: Rules) -> Result<()> {
    // A plugin that was killed leaves its socket. The lock of the state directory shows that none runs.
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket).with_context(|| format!("{}: cannot listen", socket.display()))?;
    fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    tokio::spawn(Arc::clone(&volumes).watch());
    let plugin = Plugin { node, volumes, finder, rules, turns: Arc::new(Semaphore::new(AT_ONCE_MAX)) };
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let until = async move {
        tokio::select! { _ = term.recv() => (), _ = int.recv() => () }
    };
    let server = tonic::transport::Server::builder()
        .add_service(IdentityServer::new(plugin.clone()))
        .add_service(NodeServer::new(plugin));
    server.serve_with_incoming_shutdown(UnixListenerStream::new(listener), until).await?;
    let _ = fs::remove_file(socket);
    Ok(())
}

#[derive(Clone)]
struct Plugin {
    node: String,
    volumes: Arc<Volumes>,
    finder: Finder,
    rules: Rules,
    turns: Arc<Semaphore>,
}

#[tonic::async_trait]
impl Identity for Plugin {
    async fn get_plugin_info(&self, _: Request<GetPluginInfoRequest>) -> Answer<GetPluginInfoResponse> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(GetPluginInfoResponse { name: NAME.to_owned(), vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Answer<GetPluginCapabilitiesResponse> {
        Ok(Response::new(Default::default()))
    }

    /// Returns whether a broker answers. Without one, pods get their volumes empty.
    async fn probe(&self, _: Request<ProbeRequest>) -> Answer<ProbeResponse> {
        let volumes = Arc::clone(&self.volumes);
        let ready = tokio::task::spawn_blocking(move || volumes.has_broker()).await.unwrap_or(false);
        Ok(Response::new(ProbeResponse { ready: Some(ready) }))
    }
}

#[tonic::async_trait]
impl Node for Plugin {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Answer<NodePublishVolumeResponse> {
        let asked = request.into_inner();
        let turn = self.turn(&asked.volume_id, &asked.target_path)?;
        is_directory(asked.volume_capability.as_ref())?;
        let mut wanted = Wanted::parse(&asked.volume_context).map_err(Status::invalid_argument)?;
        wanted.read_only |= asked.readonly;
        self.rules.allow(&wanted).map_err(Status::permission_denied)?;
        let plugin = self.clone();
        // A task of its own, because the call ends if kubelet no longer waits for it.
        let published = async move { plugin.publish(turn, asked.volume_id, &asked.target_path, wanted).await };
        tokio::spawn(published).await.map_err(ended)??;
        Ok(Response::new(Default::default()))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        let asked = request.into_inner();
        let turn = self.turn(&asked.volume_id, &asked.target_path)?;
        let volumes = Arc::clone(&self.volumes);
        let unpublish = move || {
            let _turn = turn;
            // Without its parent there is no target.
            let target = match Path::new(&asked.target_path).parent().is_some_and(Path::exists) {
                true => Some(volumes.target(&asked.target_path).map_err(invalid)?),
                false => None,
            };
            volumes.unpublish(&asked.volume_id, target.as_deref()).map_err(internal)
        };
        tokio::task::spawn_blocking(unpublish).await.map_err(ended)??;
        Ok(Response::new(Default::default()))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        let asked = request.into_inner();
        if asked.volume_id.is_empty() || asked.volume_path.is_empty() {
            return Err(Status::invalid_argument("volume_id and volume_path must be given"));
        }
        if !self.volumes.is_at(&asked.volume_id, &asked.volume_path) {
            return Err(Status::not_found(format!("{} is not at {}", asked.volume_id, asked.volume_path)));
        }
        let stats = rustix::fs::statvfs(asked.volume_path.as_str());
        let stats = stats.map_err(|error| Status::not_found(format!("{}: {error}", asked.volume_path)))?;
        let usage = |unit: Unit, total: u64, free: u64, size: u64| VolumeUsage {
            unit: unit.into(),
            total: total.saturating_mul(size) as i64,
            available: free.saturating_mul(size) as i64,
            used: total.saturating_sub(free).saturating_mul(size) as i64,
        };
        let bytes = usage(Unit::Bytes, stats.f_blocks, stats.f_bavail, stats.f_frsize);
        let files = usage(Unit::Inodes, stats.f_files, stats.f_favail, 1);
        Ok(Response::new(NodeGetVolumeStatsResponse { usage: vec![bytes, files], volume_condition: None }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        let stats = NodeType::Rpc(Rpc { r#type: rpc::Type::GetVolumeStats.into() });
        let capabilities = vec![NodeServiceCapability { r#type: Some(stats) }];
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Answer<NodeGetInfoResponse> {
        Ok(Response::new(NodeGetInfoResponse { node_id: self.node.clone(), ..Default::default() }))
    }

    async fn node_stage_volume(&self, _: Request<NodeStageVolumeRequest>) -> Answer<NodeStageVolumeResponse> {
        Err(Status::unimplemented("volumes are mounted in one step"))
    }

    async fn node_unstage_volume(&self, _: Request<NodeUnstageVolumeRequest>) -> Answer<NodeUnstageVolumeResponse> {
        Err(Status::unimplemented("volumes are mounted in one step"))
    }

    async fn node_expand_volume(&self, _: Request<NodeExpandVolumeRequest>) -> Answer<NodeExpandVolumeResponse> {
        Err(Status::unimplemented("volumes have a fixed size"))
    }
}

impl Plugin {
    /// Checks what every call about a volume has, and reserves the volume.
    fn turn(&self, id: &str, target: &str) -> Result<Turn, Status> {
        if id.is_empty() || target.is_empty() {
            return Err(Status::invalid_argument("volume_id and target_path must be given"));
        }
        if id.contains(char::is_control) {
            return Err(Status::invalid_argument("volume_id has control characters"));
        }
        let taken = || Status::aborted(format!("another call works on the volume {id}"));
        self.volumes.turn(id).ok_or_else(taken)
    }

    /// Mounts the image. If that is not possible, mounts an empty directory, unless the volume is
    /// strict.
    async fn publish(&self, turn: Turn, id: String, target: &str, wanted: Wanted) -> Result<(), Status> {
        let _permit = Arc::clone(&self.turns).acquire_owned().await.map_err(internal)?;
        let target = self.volumes.target(target).map_err(invalid)?;
        match self.volumes.find(&id, &target).map_err(internal)? {
            TargetState::Mounted => return Ok(()),
            TargetState::Elsewhere => {
                let why = format!("the volume {id} is mounted at another path, and can only be mounted once");
                return Err(Status::failed_precondition(why));
            }
            TargetState::Nothing => {}
        }
        let located = if wanted.pulls { self.finder.locate(&wanted).await } else { Ok(None) };
        let shown = format!("{} for {}", wanted.key, target.display());
        let volumes = Arc::clone(&self.volumes);
        let mount = move || {
            let _turn = turn;
            let empty = |why: &str| match wanted.strict {
                true => Err(Status::unavailable(format!("{shown}: {why}, and the volume is strict"))),
                false => {
                    eprintln!("larder-csi: {shown}: empty, because {why}");
                    volumes.publish(&id, &target, &wanted, None).map_err(internal)
                }
            };
            match located {
                Ok(Some(image)) => match volumes.publish(&id, &target, &wanted, Some(&image)) {
                    Ok(()) => {
                        eprintln!("larder-csi: {shown}: {}", said(&wanted, &image));
                        Ok(())
                    }
                    Err(error) => empty(&format!("the image cannot be mounted: {error:#}")),
                },
                Ok(None) => empty("there is no such image"),
                Err(error) => empty(&format!("the image cannot be found: {error:#}")),
            }
        };
        tokio::task::spawn_blocking(mount).await.map_err(ended)?
    }
}

fn said(wanted: &Wanted, image: &Located) -> String {
    match wanted.key == image.key {
        true => "mounted".to_owned(),
        false => format!("mounted {}", image.key),
    }
}

fn is_directory(capability: Option<&VolumeCapability>) -> Result<(), Status> {
    match capability.and_then(|capability| capability.access_type.as_ref()) {
        Some(AccessType::Mount(_)) => Ok(()),
        Some(AccessType::Block(_)) => Err(Status::invalid_argument("an image is no block device")),
        None => Err(Status::invalid_argument("volume_capability must be given")),
    }
}

fn invalid(error: anyhow::Error) -> Status {
    Status::invalid_argument(format!("{error:#}"))
}

fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(format!("{error:#}"))
}

/// Returns the error of a task that panicked, or whose runtime ends.
fn ended(error: tokio::task::JoinError) -> Status {
    Status::internal(format!("the call was not finished: {error}"))
}
