//! One view of the daemon, drawn into a terminal or into text.

use super::usage::Usage;
use crate::status::{Status, Worker};
use crate::terminal::{duration, safe_line, size};
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// What is drawn.
pub(super) struct View<'a> {
    pub(super) status: &'a Status,
    /// Beside each worker; `None` where it can't be seen.
    pub(super) usage: &'a [Option<Usage>],
    pub(super) colour: bool,
    /// Workers scrolled over.
    pub(super) skip: usize,
    /// The last line.
    pub(super) foot: &'a str,
}

const HEADING: [&str; 7] = [
    "ROLE",
    "PID",
    "STATE",
    "RESTARTS",
    "MEMORY",
    "CPU %",
    "LAST LINE",
];
const WIDTHS: [Constraint; 7] = [
    Constraint::Length(26),
    Constraint::Length(8),
    Constraint::Length(9),
    Constraint::Length(8),
    Constraint::Length(10),
    Constraint::Length(6),
    Constraint::Min(10),
];

impl View<'_> {
    /// Lines above and below the workers.
    const AROUND: usize = 4;

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let [head, table, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        let workers = self.status.workers.iter().zip(self.usage).skip(self.skip);
        let rows = workers.map(|(worker, usage)| self.row(worker, *usage));
        let heading = Row::new(HEADING).style(self.style(Color::Reset, Modifier::BOLD));
        frame.render_widget(Table::new(rows, WIDTHS).header(heading), table);
        frame.render_widget(Paragraph::new(self.foot), foot);
    }

    fn style(&self, colour: Color, modifier: Modifier) -> Style {
        if self.colour {
            Style::new().fg(colour).add_modifier(modifier)
        } else {
            Style::new()
        }
    }

    fn head(&self) -> Vec<Line<'static>> {
        let status = self.status;
        let (word, colour) = match (status.ok, status.degraded.is_empty()) {
            (true, _) => ("healthy", Color::Green),
            (false, false) => ("DEGRADED", Color::Red),
            (false, true) => ("UNHEALTHY", Color::Red),
        };
        let version = safe_line(&status.version, 40);
        let restarts: u64 = status.workers.iter().map(|w| w.restarts).sum();
        let forbidden: u64 = status.violations.values().flat_map(|c| c.values()).sum();
        vec![
            Line::from(vec![
                Span::raw(format!("monod {version}  ")),
                Span::styled(word, self.style(colour, Modifier::BOLD)),
                Span::raw(format!("  up {}", duration(status.uptime_ms))),
            ]),
            Line::from(format!(
                "turns: {} at work, {} waiting   restarts: {restarts}   refused messages: {}   forbidden calls: {forbidden}",
                status.runs.working, status.runs.waiting, status.protocol_violations
            )),
        ]
    }

    fn row(&self, worker: &Worker, usage: Option<Usage>) -> Row<'static> {
        let none = || "-".to_owned();
        let pid = worker.pid.map_or_else(none, |pid| pid.to_string());
        let memory = usage.map_or(worker.rss_bytes, |u| u.rss_bytes);
        let cpu = usage.and_then(|u| u.cpu_percent);
        let cells = [
            safe_line(&worker.title(), 26),
            pid,
            safe_line(&worker.state, 9),
            worker.restarts.to_string(),
            if worker.pid.is_some() {
                size(memory)
            } else {
                none()
            },
            cpu.map_or_else(none, |percent| format!("{percent:.1}")),
            safe_line(&worker.last_line, 200),
        ];
        let row = Row::new(cells.map(Cell::from));
        if worker.state == "parked" || (worker.state != "starting" && worker.weakness().is_some()) {
            row.style(self.style(Color::Red, Modifier::BOLD))
        } else {
            row
        }
    }

    /// The same as text of this width, with every worker.
    pub(super) fn text(&self, width: u16) -> String {
        let height = self.status.workers.len() + Self::AROUND;
        let height = u16::try_from(height).unwrap_or(u16::MAX);
        // Drawing into memory can't fail, as the types say.
        let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
        let Ok(_) = terminal.draw(|frame| self.draw(frame));
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(usize::from(width).max(1));
        let lines = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        let lines: Vec<_> = lines.map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn status() -> Status {
        serde_json::from_value(json!({
            "ok": false, "version": "0.1.0", "uptime_ms": 61_000, "protocol_violations": 2,
            "violations": {"run": {"ptrace": 2}, "store": {"bpf": 1}},
            "runs": {"working": 1, "waiting": 3},
            "workers": [
                {"role": "store", "pid": 41, "state": "serving", "restarts": 1, "rss_bytes": 3_145_728,
                 "last_line": "swept\u{1b}[2J"},
                {"role": "egress", "state": "parked", "restarts": 10, "last_line": "no key"},
                {"role": "mcp-server", "name": "everything", "pid": 9, "state": "serving"}
            ]
        }))
        .unwrap()
    }

    #[test]
    fn a_view_shows_workers_turns_and_restarts() {
        let status = status();
        let usage = [
            None,
            None,
            Some(Usage {
                rss_bytes: 1024,
                cpu_percent: Some(12.34),
            }),
        ];
        let view = View {
            status: &status,
            usage: &usage,
            colour: false,
            skip: 0,
            foot: "",
        };
        assert_eq!(
            view.text(100),
            "monod 0.1.0  UNHEALTHY  up 1 min 1 s\n\
             turns: 1 at work, 3 waiting   restarts: 11   refused messages: 2   forbidden calls: 3\n\
             ROLE                       PID      STATE     RESTARTS MEMORY     CPU %  LAST LINE\n\
             store                      41       serving   1        3.0 MiB    -      swept\\u{1b}[2J\n\
             egress                     -        parked    10       -          -      no key\n\
             mcp-server (everything)    9        serving   0        1.0 KiB    12.3"
        );
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_fail_and_scrolling_ends() {
        let status = status();
        let usage = [None, None, None];
        for (width, height, skip) in [(1, 1, 0), (3, 2, 1), (20, 5, 99), (200, 60, 2)] {
            let view = View {
                status: &status,
                usage: &usage,
                colour: true,
                skip,
                foot: "q quits",
            };
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
        }
    }
}
