//! Coordinator and worker in one process: the same gRPC, over a pipe in memory.

use std::io;

use hyper_util::rt::TokioIo;
use iceferry_proto::wire::dispatch_server::{Dispatch, DispatchServer};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint, Server};

/// Bytes that wait in the pipe in each direction.
const PIPE_BYTES: usize = 256 * 1024;

/// Serves `dispatch` on a pipe, and gives the channel to its other end. The server ends when `shutdown` is cancelled.
pub(crate) fn serve<D: Dispatch>(
    dispatch: DispatchServer<D>,
    shutdown: CancellationToken,
) -> (Channel, JoinHandle<Result<(), tonic::transport::Error>>) {
    let (ends, incoming) = mpsc::channel::<DuplexStream>(1);
    let incoming = ReceiverStream::new(incoming).map(Ok::<_, io::Error>);
    let server = Server::builder().add_service(dispatch);
    let served = tokio::spawn(server.serve_with_incoming_shutdown(incoming, async move { shutdown.cancelled().await }));
    // Each connect takes a new pipe, so a channel that reconnects never meets the rest of an old one.
    let connector = tower::service_fn(move |_| {
        let ends = ends.clone();
        async move {
            let (client, server) = tokio::io::duplex(PIPE_BYTES);
            let sent = ends.send(server).await;
            sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the coordinator has ended"))?;
            Ok::<_, io::Error>(TokioIo::new(client))
        }
    });
    (Endpoint::from_static("http://in-process").connect_with_connector_lazy(connector), served)
}
