//! The wire between a coordinator and its workers: generated types in [`wire`], and the only place where they meet the
//! domain's own, [`convert`].

pub mod convert;

/// Generated from `proto/iceferry/v1`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod wire {
    tonic::include_proto!("iceferry.v1");
}
