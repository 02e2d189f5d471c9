//! A controller for `csi-sanity`, which tests a volume only if one made it. The volumes of this one have the
//! attributes of inline volumes, so that the plugin takes them for such.

use std::path::Path;

use larder_csi::proto::controller_server::{Controller, ControllerServer};
use larder_csi::proto::controller_service_capability::{Rpc, Type, rpc};
use larder_csi::proto::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
    ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerServiceCapability, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    GetCapacityRequest, GetCapacityResponse, ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest,
    ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

struct OfTest;

type Answer<T> = Result<Response<T>, Status>;

/// Serves on a socket as long as this process runs.
pub(crate) fn serve_apart(socket: &Path) {
    let listener = std::os::unix::net::UnixListener::bind(socket).expect("listens");
    listener.set_nonblocking(true).expect("is set");
    std::thread::spawn(|| {
        crate::fixture::wait(async {
            let connections = UnixListenerStream::new(UnixListener::from_std(listener).expect("is a socket"));
            let server = tonic::transport::Server::builder().add_service(ControllerServer::new(OfTest));
            server.serve_with_incoming(connections).await.expect("serves");
        });
    });
}

#[tonic::async_trait]
impl Controller for OfTest {
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        let create = Type::Rpc(Rpc { r#type: rpc::Type::CreateDeleteVolume.into() });
        let capabilities = vec![ControllerServiceCapability { r#type: Some(create) }];
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        let CreateVolumeRequest { name, parameters, .. } = request.into_inner();
        let volume = Volume { volume_id: name, volume_context: parameters, ..Default::default() };
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(&self, _: Request<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        _: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn controller_unpublish_volume(
        &self,
        _: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn validate_volume_capabilities(
        &self,
        _: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn list_volumes(&self, _: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn get_capacity(&self, _: Request<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn create_snapshot(&self, _: Request<CreateSnapshotRequest>) -> Answer<CreateSnapshotResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn delete_snapshot(&self, _: Request<DeleteSnapshotRequest>) -> Answer<DeleteSnapshotResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn list_snapshots(&self, _: Request<ListSnapshotsRequest>) -> Answer<ListSnapshotsResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn controller_expand_volume(
        &self,
        _: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn controller_get_volume(
        &self,
        _: Request<ControllerGetVolumeRequest>,
    ) -> Answer<ControllerGetVolumeResponse> {
        Err(Status::unimplemented("is not asked for"))
    }

    async fn controller_modify_volume(
        &self,
        _: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        Err(Status::unimplemented("is not asked for"))
    }
}
