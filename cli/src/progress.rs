//! How far a run is: a bar on a terminal, plain lines otherwise, nothing beside JSON.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use iceferry_common::model::EpochId;
use iceferry_coordinator::distribute::Progress as Counters;
use iceferry_coordinator::job::{EpochReport, Observer, Prepared};
use iceferry_coordinator::plan::PlanSummary;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
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
        let epochs = if epochs == 1 { "1 epoch".to_owned() } else { format!("{epochs} epochs") };
        self.say(&format!("{}: {} -> {}, {epochs}", prepared.job.name, prepared.source_name(), prepared.target_name()));
    }

    fn planned(&self, epoch: EpochId, summary: &PlanSummary) {
        self.planned.send_replace(summary.clone());
        if let Shown::Lines = self.shown {
            let files = summary.files_added + summary.files_removed + summary.files_changed;
            self.say(&format!(
                "epoch {epoch}: planned {} tasks, {} files, {}",
                HumanCount(summary.tasks),
                HumanCount(files),
                HumanBytes(summary.data_bytes)
            ));
        }
    }

    fn committed(&self, epoch: &EpochReport) {
        self.planned.send_replace(PlanSummary::default());
        if let Shown::Lines = self.shown {
            self.say(&format!("epoch {}: {}", epoch.epoch, output::epoch(epoch)));
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{spinner} {wide_bar} {pos}/{len} tasks  {msg}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Moves the bar until it is aborted. The length is what is known of the plan, which may still grow.
async fn draw(bar: ProgressBar, counters: watch::Receiver<Counters>, plans: watch::Receiver<PlanSummary>) {
    let mut ticks = tokio::time::interval(REDRAW);
    loop {
        ticks.tick().await;
        let now = counters.borrow().clone();
        let planned = plans.borrow().clone();
        let known = now.tasks_done + now.tasks_leased + now.tasks_waiting;
        bar.set_length(known.max(planned.tasks));
        bar.set_position(now.tasks_done);
        let more = if planned.complete { "" } else { "+" };
        bar.set_message(format!(
            "{} files{more}, {} rows, {} read, {} written",
            HumanCount(planned.files_added + planned.files_removed + planned.files_changed),
            HumanCount(now.rows.read),
            HumanBytes(now.rows.bytes_read),
            HumanBytes(now.rows.bytes_written),
        ));
        bar.tick();
    }
}
