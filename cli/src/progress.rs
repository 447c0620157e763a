//! How far a run is: a bar on a terminal, plain lines otherwise, nothing beside JSON.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use iceferry_common::model::{EpochId, RowCounts};
use iceferry_coordinator::distribute::Progress as Counters;
use iceferry_coordinator::job::{EpochReport, Observer, Prepared};
use iceferry_coordinator::plan::PlanSummary;
use iceferry_coordinator::verify::{self, SideName, SideReport};
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::args::Output;
use crate::output;

/// How often the bar looks at the counters.
const REDRAW: Duration = Duration::from_millis(200);

/// Shows a run's progress on standard error.
pub(crate) struct Progress {
    shown: Shown,
    planned: watch::Sender<PlanSummary>,
    drawing: Mutex<Option<JoinHandle<()>>>,
}

enum Shown {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Progress {
    /// Starts to show; `counters` are the dispatcher's own.
    pub(crate) fn start(output: Output, counters: watch::Receiver<Counters>) -> Self {
        let (planned, plans) = watch::channel(PlanSummary::default());
        let shown = match output {
            Output::Json => Shown::Nothing,
            Output::Text if std::io::stderr().is_terminal() => Shown::Bar(bar()),
            Output::Text => Shown::Lines,
        };
        let drawing = match &shown {
            Shown::Bar(bar) => Some(tokio::spawn(draw(bar.clone(), counters, plans))),
            Shown::Lines | Shown::Nothing => None,
        };
        Self { shown, planned, drawing: Mutex::new(drawing) }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        let drawing = self.drawing.lock().ok().and_then(|mut drawing| drawing.take());
        if let Some(drawing) = drawing {
            drawing.abort();
        }
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }

    fn say(&self, line: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(|| eprintln!("{line}")),
            Shown::Lines => eprintln!("{line}"),
            Shown::Nothing => {}
        }
    }
}

impl Observer for Progress {
    fn started(&self, prepared: &Prepared, epochs: usize) {
        for note in &prepared.notes {
            self.say(&format!("note: {note}"));
        }
        let epochs = output::counted(epochs as u64, "epoch");
        self.say(&format!("{}: {} -> {}, {epochs}", prepared.job.name, prepared.source_name(), prepared.target_name()));
    }

    fn planned(&self, epoch: EpochId, summary: &PlanSummary) {
        self.planned.send_replace(summary.clone());
        if let Shown::Lines = self.shown {
            let files = summary.files_added + summary.files_removed + summary.files_changed;
            self.say(&format!(
                "epoch {epoch}: planned {}, {}, {}",
                output::counted(summary.tasks, "task"),
                output::counted(files, "file"),
                HumanBytes(summary.data_bytes)
            ));
        }
    }

    fn committed(&self, epoch: &EpochReport) {
        self.planned.send_replace(PlanSummary::default());
        match &self.shown {
            // The next epoch has a pace of its own.
            Shown::Bar(bar) => bar.reset_elapsed(),
            Shown::Lines => self.say(&format!("epoch {}: {}", epoch.epoch, output::epoch(epoch))),
            Shown::Nothing => {}
        }
    }
}

impl verify::Observer for Progress {
    fn started(&self, job: &str, source: &SideReport, target: &SideReport) {
        let side = |side: &SideReport| match &side.snapshot_id {
            Some(snapshot) => format!("{} at snapshot {snapshot}", side.table),
            None => format!("{}, which has no snapshot", side.table),
        };
        self.say(&format!("{job}: comparing {} with {}", side(source), side(target)));
    }

    fn planned(&self, side: SideName, summary: &PlanSummary) {
        self.planned.send_replace(summary.clone());
        if let Shown::Lines = self.shown {
            let (tasks, files) = (output::counted(summary.tasks, "task"), output::counted(summary.files_added, "file"));
            self.say(&format!("{side}: planned {tasks}, {files}, {}", HumanBytes(summary.data_bytes)));
        }
    }

    fn read(&self, side: SideName, rows: &RowCounts) {
        self.planned.send_replace(PlanSummary::default());
        match &self.shown {
            Shown::Bar(bar) => bar.reset_elapsed(),
            Shown::Lines => {
                let (rows, bytes) = (output::counted(rows.read, "row"), HumanBytes(rows.bytes_read));
                self.say(&format!("{side}: {rows} read, {bytes}"));
            }
            Shown::Nothing => {}
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_bar} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Moves the bar until it is aborted.
async fn draw(bar: ProgressBar, counters: watch::Receiver<Counters>, plans: watch::Receiver<PlanSummary>) {
    let mut ticks = tokio::time::interval(REDRAW);
    loop {
        ticks.tick().await;
        redraw(&bar, &counters.borrow().clone(), &plans.borrow().clone());
    }
}

/// The bar is as long as the plan has rows: a task is much, and files are of any size. Deleted rows of the files are among
/// them, so that it may end before its end.
fn redraw(bar: &ProgressBar, now: &Counters, planned: &PlanSummary) {
    let rows = planned.records_added + planned.records_removed + planned.records_changed;
    bar.set_length(rows);
    bar.set_position(now.rows.read.min(rows));
    let files = planned.files_added + planned.files_removed + planned.files_changed;
    // Until planning ends, the dispatcher knows what was planned so far.
    let (files, more) = if planned.complete { (files, "") } else { (now.files_seen, "+") };
    let left = match time_left(now.rows.read, rows, bar.elapsed()) {
        Some(left) => format!("{} left", HumanDuration(left)),
        None => "time left unknown".to_owned(),
    };
    let carried = match now.rows.files_copied + now.rows.files_spliced {
        0 => String::new(),
        carried => format!(" ({} as bytes)", HumanCount(carried)),
    };
    bar.set_message(format!(
        "{} files{more}{carried}, {} rows, {} read, {} written, {left}",
        HumanCount(files),
        HumanCount(now.rows.read),
        HumanBytes(now.rows.bytes_read),
        HumanBytes(now.rows.bytes_written),
    ));
    bar.tick();
}

/// How long the rest takes at the pace until now; none before there is a pace or an end.
fn time_left(done: u64, all: u64, elapsed: Duration) -> Option<Duration> {
    if done == 0 || all == 0 {
        return None;
    }
    let rest = all.saturating_sub(done) as f64 / done as f64;
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * rest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_known_once_there_is_a_pace_and_an_end() {
        let elapsed = Duration::from_secs(30);
        for (done, all, left) in [(0, 10, None), (5, 0, None), (10, 40, Some(90)), (40, 40, Some(0)), (50, 40, Some(0))]
        {
            assert_eq!(time_left(done, all, elapsed), left.map(Duration::from_secs), "{done} of {all}");
        }
    }
}
