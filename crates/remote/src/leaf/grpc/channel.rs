//! The connection to a server of the Remote Execution API, opened on first use, and its
//! capabilities.
//!
//! Unaware of: what is stored.

use crate::error::{causes, own_error};
use crate::leaf::client::CONNECT_WAIT_MAX;
use crate::wait::Wait;
use crate::{Key, RemoteError, RemoteUrl, Trouble};
use bazel_remote_apis::build::bazel::remote::execution::v2 as api;
use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use hyper_util::rt::TokioIo;
use reqwest::header::HeaderMap;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tonic::metadata::MetadataMap;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status};

/// The most bytes of a batch, if the server does not say less. It is below gRPC's default limit of
/// 4 MiB for a message.
const BATCH_BYTES_DEFAULT: u64 = (4 << 20) - (64 << 10);
/// The most bytes of a message that we accept.
pub(super) const MESSAGE_BYTES_MAX: usize = 5 << 20;
/// How many bytes a server may send before we have read them: per stream, and on all streams
/// together.
const STREAM_AHEAD_BYTES: u32 = 512 << 10;
const ALL_AHEAD_BYTES: u32 = 8 << 20;
const KEEP_ALIVE: Duration = Duration::from_secs(30);

type Authorised = InterceptedService<Channel, Headers>;

/// A server: its address, credentials, and the connection once it is open.
pub(super) struct Server {
    pub(super) name: Arc<str>,
    pub(super) instance: String,
    endpoint: Endpoint,
    address: String,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    headers: Headers,
    calls: OnceCell<Calls>,
    /// A source of random names for uploads.
    pub(super) chance: Wait,
}

/// A connection, and the capabilities of its server.
#[derive(Clone)]
pub(super) struct Calls {
    channel: Authorised,
    /// The most bytes of content in a batch.
    pub(super) batch_bytes_max: u64,
    /// Streamed blobs may be compressed.
    pub(super) zstd: bool,
}

/// Adds the configured headers to every request.
#[derive(Clone)]
pub(super) struct Headers(MetadataMap);

impl tonic::service::Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let mut headers = std::mem::take(request.metadata_mut()).into_headers();
        headers.extend(self.0.clone().into_headers());
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        Ok(request)
    }
}

impl Calls {
    pub(super) fn results(&self) -> api::action_cache_client::ActionCacheClient<Authorised> {
        let client = api::action_cache_client::ActionCacheClient::new(self.channel.clone());
        client.max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(super) fn blobs(&self) -> api::content_addressable_storage_client::ContentAddressableStorageClient<Authorised> {
        let new = api::content_addressable_storage_client::ContentAddressableStorageClient::new;
        new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(super) fn streams(&self) -> ByteStreamClient<Authorised> {
        ByteStreamClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

impl Server {
    pub(super) fn new(
        url: &RemoteUrl,
        address: &str,
        instance: &str,
        tls: Option<ClientConfig>,
        headers: HeaderMap,
        seed: u64,
    ) -> Result<Server, RemoteError> {
        let name: Arc<str> = url.name().into();
        let wrong = |why: String| RemoteError::failed(&name, None, Trouble::Unable, why);
        let origin = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
        let origin: Uri = origin.parse().map_err(|error| wrong(format!("{error}")))?;
        // The connector below does the encryption, so the scheme of the endpoint is always `http`.
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| wrong(error.to_string()))?;
        let endpoint = endpoint
            .origin(origin)
            .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| wrong(error.to_string()))?
            .connect_timeout(CONNECT_WAIT_MAX)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .initial_stream_window_size(STREAM_AHEAD_BYTES)
            .initial_connection_window_size(ALL_AHEAD_BYTES)
            .tcp_nodelay(true);
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let tls = match tls {
            None => None,
            Some(mut config) => {
                config.alpn_protocols = vec![b"h2".to_vec()];
                let host = ServerName::try_from(host.to_owned()).map_err(|error| wrong(error.to_string()))?;
                Some((Arc::new(config), host))
            }
        };
        Ok(Server {
            name,
            instance: instance.to_owned(),
            endpoint,
            address: address.to_owned(),
            tls,
            headers: Headers(MetadataMap::from_headers(headers)),
            calls: OnceCell::new(),
            chance: Wait::new(seed),
        })
    }

    /// Returns the connection and the server's capabilities. The first call connects and asks for
    /// them.
    pub(super) async fn calls(&self, key: Key) -> Result<Calls, RemoteError> {
        let made = self.calls.get_or_try_init(|| async {
            let (address, tls) = (self.address.clone(), self.tls.clone());
            let connect = move |_: Uri| {
                let (address, tls) = (address.clone(), tls.clone());
                async move { connection(&address, tls).await }
            };
            let channel = self.endpoint.connect_with_connector_lazy(tower::service_fn(connect));
            let channel = InterceptedService::new(channel, self.headers.clone());
            let mut client = api::capabilities_client::CapabilitiesClient::new(channel.clone());
            let request = api::GetCapabilitiesRequest { instance_name: self.instance.clone() };
            let cache = match client.get_capabilities(request).await {
                Ok(answer) => answer.into_inner().cache_capabilities.unwrap_or_default(),
                Err(status) if status.code() == Code::Unimplemented => api::CacheCapabilities::default(),
                Err(status) => return Err(self.failed(Some(key), &status)),
            };
            let sha256 = api::digest_function::Value::Sha256 as i32;
            if !cache.digest_functions.is_empty() && !cache.digest_functions.contains(&sha256) {
                let why = "the server does not support SHA-256 digests";
                return Err(RemoteError::failed(&self.name, None, Trouble::Unable, why));
            }
            let said = u64::try_from(cache.max_batch_total_size_bytes).unwrap_or_default();
            let zstd = cache.supported_compressors.contains(&(api::compressor::Value::Zstd as i32));
            Ok(Calls {
                channel,
                batch_bytes_max: if said == 0 { BATCH_BYTES_DEFAULT } else { said.min(BATCH_BYTES_DEFAULT) },
                zstd: zstd && super::pack::IS_HERE,
            })
        });
        made.await.cloned()
    }

    /// Converts a gRPC status.
    pub(super) fn failed(&self, key: Option<Key>, status: &Status) -> RemoteError {
        let trouble = match status.code() {
            Code::Unavailable | Code::Cancelled => Trouble::Unreachable,
            Code::DeadlineExceeded => Trouble::Stalled,
            Code::ResourceExhausted => Trouble::Busy,
            Code::PermissionDenied | Code::Unauthenticated => Trouble::Denied,
            Code::OutOfRange => Trouble::TooLarge,
            Code::Unimplemented => Trouble::Unable,
            Code::DataLoss => Trouble::Damaged,
            // From a proxy before the server, which answers with an HTTP status.
            _ if status.message().contains("status: 401") || status.message().contains("status: 403") => {
                Trouble::Denied
            }
            _ if ["502", "503", "504"].iter().any(|code| status.message().contains(&format!("status: {code}"))) => {
                Trouble::Unreachable
            }
            _ => Trouble::Other,
        };
        // An error of connecting comes back as a source, too.
        own_error(status).unwrap_or_else(|| {
            let why = format!("{:?}: {}{}", status.code(), status.message(), causes(status));
            RemoteError::failed(&self.name, key, trouble, why)
        })
    }
}

/// A TCP connection, encrypted or not.
pub(super) trait Wire: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Wire for T {}

async fn connection(
    address: &str,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> io::Result<TokioIo<Box<dyn Wire>>> {
    let connected = async {
        let plain = TcpStream::connect(address).await?;
        plain.set_nodelay(true)?;
        let wire: Box<dyn Wire> = match tls {
            None => Box::new(plain),
            Some((config, host)) => Box::new(tokio_rustls::TlsConnector::from(config).connect(host, plain).await?),
        };
        Ok(TokioIo::new(wire))
    };
    match tokio::time::timeout(CONNECT_WAIT_MAX, connected).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
