//! Stopping in order. A first signal asks to drain: take nothing new, finish or give back, close. A second one ends the
//! process at once.

use tokio_util::sync::CancellationToken;

/// Waits for SIGTERM or SIGINT, then cancels `drain`; a second signal exits the process with code 130.
///
/// # Errors
/// When the process cannot listen for signals.
pub fn on_signals(drain: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // The one detached task: it lives as long as the process.
    tokio::spawn(async move {
        for round in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if round > 0 {
                std::process::exit(130);
            }
            tracing::info!("asked to stop; draining, a second signal ends at once");
            drain.cancel();
        }
    });
    Ok(())
}
