//! Where output goes: text or JSON, terminal or pipe.

use crate::error::CtlError;
use crate::terminal::{safe, safe_json};
use serde::Serialize;
use serde_json::json;
use std::io::{self, IsTerminal, Write};

/// Standard output and standard error with what is known about them.
pub(crate) struct Screen {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    json: bool,
    out_is_terminal: bool,
    colour: bool,
    /// The last byte written to `out` ended a line.
    line_ended: bool,
}

/// Colours that mean something.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Colour {
    Good,
    Bad,
}

impl Screen {
    /// This process's own.
    pub(crate) fn of_process(json: bool, no_color: bool) -> Self {
        let out_is_terminal = io::stdout().is_terminal();
        let unwanted = no_color || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            json,
            out_is_terminal,
            colour: out_is_terminal && !unwanted,
            line_ended: true,
        }
    }

    /// True when a script reads the output.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// True when a person looks at standard output.
    pub(crate) fn is_terminal(&self) -> bool {
        self.out_is_terminal
    }

    /// True when colours are wanted.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour
    }

    /// One JSON value as a line.
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> Result<(), CtlError> {
        let json = serde_json::to_string(value).map_err(io::Error::from)?;
        let json = if self.out_is_terminal {
            safe_json(&json)
        } else {
            json.into()
        };
        Ok(writeln!(self.out, "{json}").and_then(|()| self.out.flush())?)
    }

    /// A line of our own words; what is quoted in it must be safe already.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), CtlError> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// A piece of an answer, as it is into a pipe or when `raw`.
    pub(crate) fn answer(&mut self, text: &str, raw: bool) -> Result<(), CtlError> {
        if let Some(last) = text.chars().last() {
            self.line_ended = last == '\n';
            let shown = if self.out_is_terminal && !raw {
                safe(text)
            } else {
                text.into()
            };
            self.out.write_all(shown.as_bytes())?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Ends the answer's last line, unless it is ended.
    pub(crate) fn end_line(&mut self) -> Result<(), CtlError> {
        if !self.line_ended {
            self.line_ended = true;
            writeln!(self.out)?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Any bytes, as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CtlError> {
        Ok(self.out.write_all(bytes).and_then(|()| self.out.flush())?)
    }

    /// A line beside the answer. Text of strangers in it is shown safely wherever it goes.
    pub(crate) fn aside(&mut self, text: &str) -> Result<(), CtlError> {
        self.aside_trusted(&safe(text))
    }

    /// A line beside the answer that may hold our own colours; the rest of it is safe already.
    pub(crate) fn aside_trusted(&mut self, text: &str) -> Result<(), CtlError> {
        if self.out_is_terminal {
            self.end_line()?;
        }
        Ok(writeln!(self.err, "{text}")?)
    }

    /// Our own words in a colour.
    pub(crate) fn paint(&self, text: &str, colour: Colour) -> String {
        match (self.colour, colour) {
            (false, _) => text.to_owned(),
            (true, Colour::Good) => format!("\u{1b}[32m{text}\u{1b}[0m"),
            (true, Colour::Bad) => format!("\u{1b}[1;31m{text}\u{1b}[0m"),
        }
    }

    /// Why the command failed. A script gets an object of its own on standard output.
    pub(crate) fn error(&mut self, error: &CtlError) {
        if matches!(error, CtlError::Output(_)) && error.status() == 141 {
            return;
        }
        let told = json!({
            "ok": false,
            "error": { "kind": error.code(), "message": error.to_string() }
        });
        if self.json && self.json(&told).is_ok() {
            return;
        }
        // Nobody is left to be told when this fails, too.
        let _ = self.aside(&format!("monoctl: {error}"));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Default, Clone)]
    pub(crate) struct Page(Rc<RefCell<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).unwrap()
        }
    }

    pub(crate) fn screen(json: bool, out_is_terminal: bool) -> (Screen, Page, Page) {
        let (out, err) = (Page::default(), Page::default());
        let screen = Screen {
            out: Box::new(out.clone()),
            err: Box::new(err.clone()),
            json,
            out_is_terminal,
            colour: false,
            line_ended: true,
        };
        (screen, out, err)
    }

    #[test]
    fn a_terminal_gets_no_sequence_of_the_model_but_a_pipe_and_raw_do() {
        let red = "\u{1b}[31mred";
        for (terminal, raw, shown) in [
            (true, false, "\\u{1b}[31mred"),
            (true, true, red),
            (false, false, red),
        ] {
            let (mut screen, out, _) = screen(false, terminal);
            screen.answer(red, raw).unwrap();
            assert_eq!(out.text(), shown);
        }
        let (mut screen, out, err) = screen(true, true);
        screen.json(&"\u{9b}31m\u{1b}").unwrap();
        assert_eq!(out.text(), "\"\\u009b31m\\u001b\"\n");
        screen.aside(red).unwrap();
        assert_eq!(err.text(), "\\u{1b}[31mred\n");
    }

    #[test]
    fn an_aside_never_stands_in_the_middle_of_a_terminals_line() {
        let (mut on_terminal, out, _) = screen(false, true);
        on_terminal.answer("half", false).unwrap();
        on_terminal.aside("tool").unwrap();
        on_terminal.end_line().unwrap();
        assert_eq!(out.text(), "half\n");
        let (mut on_pipe, out, _) = screen(false, false);
        on_pipe.answer("half", false).unwrap();
        on_pipe.aside("tool").unwrap();
        assert_eq!(out.text(), "half");
        on_pipe.end_line().unwrap();
        assert_eq!(out.text(), "half\n");
    }

    #[test]
    fn an_error_is_an_object_for_scripts() {
        let (mut screen, out, _) = screen(true, false);
        screen.error(&CtlError::Refused {
            code: "not_found".into(),
            message: "none".into(),
        });
        assert_eq!(
            out.text(),
            "{\"error\":{\"kind\":\"not_found\",\"message\":\"none (not_found)\"},\"ok\":false}\n"
        );
    }
}
