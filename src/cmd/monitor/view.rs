//! What the terminal view shows, and what its keys do. It has no terminal: the tests draw into memory.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use linkgauge::monitor::{Column, LinkHealth, LinkView, Live, Overview, SPANS};
use linkgauge::report::{printable, sparkline_glyphs, to_ascii};
use linkgauge::units::{format_bit_rate, format_nanoseconds};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

/// Events below the table, and below a link.
const EVENT_LINES: u16 = 4;

/// Spans that are in memory; the page shows longer ones.
const SPAN_COUNT: usize = 2;

/// Width of a time, as that of "down since".
const FIGURE_WIDTH: usize = 10;

/// Width of losses, or of a rate, as "941.2 Mbit/s".
const LAST_WIDTH: usize = 12;

/// The order of the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SortOrder {
    Trouble,
    Name,
    P50,
    P99,
    Loss,
}

impl SortOrder {
    const ALL: [SortOrder; 5] =
        [SortOrder::Trouble, SortOrder::Name, SortOrder::P50, SortOrder::P99, SortOrder::Loss];

    fn next(self) -> SortOrder {
        let at = SortOrder::ALL.iter().position(|order| *order == self).unwrap_or(0);
        SortOrder::ALL[(at + 1) % SortOrder::ALL.len()]
    }
}

/// The state of the view.
pub struct View {
    live: Arc<Live>,
    overview: Arc<Overview>,
    order: SortOrder,
    is_paused: bool,
    /// A key was pressed since the last drawing.
    is_touched: bool,
    /// Name of the selected link.
    selected: Option<String>,
    is_open: bool,
    span: usize,
    table: TableState,
    is_unicode: bool,
    zone: TimeZone,
}

impl View {
    pub fn new(live: Arc<Live>, is_unicode: bool, zone: TimeZone) -> View {
        View {
            overview: live.overview(),
            live,
            order: SortOrder::Trouble,
            is_paused: false,
            is_touched: true,
            selected: None,
            is_open: false,
            span: 0,
            table: TableState::default(),
            is_unicode,
            zone,
        }
    }

    /// Takes a new state; true if there is something to draw.
    pub fn take_state(&mut self) -> bool {
        let latest = self.live.overview();
        let is_new = !self.is_paused && !Arc::ptr_eq(&latest, &self.overview);
        if is_new {
            self.overview = latest;
        }
        std::mem::take(&mut self.is_touched) || is_new
    }

    /// What a key does; true if it ends the view.
    pub fn press(&mut self, key: KeyCode) -> bool {
        self.is_touched = true;
        match key {
            KeyCode::Char('q') => return true,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.is_open = false,
            KeyCode::Enter | KeyCode::Right => self.is_open = !self.overview.links.is_empty(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('t') | KeyCode::Tab => self.span = (self.span + 1) % SPAN_COUNT,
            KeyCode::Up | KeyCode::Char('k') => self.select(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(|at, last| (at + 1).min(last)),
            KeyCode::PageUp => self.select(|at, _| at.saturating_sub(10)),
            KeyCode::PageDown => self.select(|at, last| (at + 10).min(last)),
            KeyCode::Home => self.select(|_, _| 0),
            KeyCode::End => self.select(|_, last| last),
            _ => {}
        }
        false
    }

    fn select(&mut self, choose: impl Fn(usize, usize) -> usize) {
        let links = self.ordered();
        let Some(last) = links.len().checked_sub(1) else { return };
        let chosen = links[choose(self.selected_place(&links), last)];
        self.selected = Some(self.overview.links[chosen].name.clone());
    }

    fn selected_place(&self, links: &[usize]) -> usize {
        let is_selected = |index: &usize| Some(&self.overview.links[*index].name) == self.selected.as_ref();
        links.iter().position(is_selected).unwrap_or(0)
    }

    /// The links in their order on the screen.
    fn ordered(&self) -> Vec<usize> {
        let links = &self.overview.links;
        let mut order: Vec<usize> = (0..links.len()).collect();
        let descending = |value: fn(&LinkView) -> f64| {
            move |a: &usize, b: &usize| value(&links[*b]).total_cmp(&value(&links[*a]))
        };
        match self.order {
            SortOrder::Trouble => order.sort_by_key(|index| links[*index].trouble()),
            SortOrder::Name => order.sort_by_key(|index| links[*index].name.as_str()),
            SortOrder::P50 => order.sort_by(descending(|link| link.p50_ns.unwrap_or(-1.0))),
            SortOrder::P99 => order.sort_by(descending(|link| link.p99_ns.unwrap_or(-1.0))),
            SortOrder::Loss => order.sort_by(descending(|link| loss(link).unwrap_or(-1.0))),
        }
        order
    }

    fn clock(&self, second: i64) -> String {
        let moment = Timestamp::from_second(second).unwrap_or_default().to_zoned(self.zone.clone());
        moment.strftime("%H:%M:%S").to_string()
    }

    /// Text that the terminal can show.
    fn text(&self, text: &str) -> String {
        let text = printable(text);
        if self.is_unicode { text } else { to_ascii(&text) }
    }
}

fn loss(link: &LinkView) -> Option<f64> {
    (link.due > 0).then(|| link.lost as f64 / link.due as f64)
}

fn latency(time: Option<f64>) -> String {
    match time {
        None => "–".to_owned(),
        Some(time) if time.is_finite() => format_nanoseconds(time),
        Some(_) => "lost".to_owned(),
    }
}

fn style_of(state: LinkHealth) -> Style {
    match state {
        LinkHealth::Alarm | LinkHealth::Down => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        LinkHealth::Up => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame, view: &mut View) {
    let [head, body, events, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(EVENT_LINES),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let links = view.ordered();
    let place = view.selected_place(&links);
    view.table.select(links.get(place).map(|_| place));
    let selected = links.get(place).copied().filter(|_| view.is_open);
    frame
        .render_widget(Paragraph::new(headline(view)).style(Style::new().add_modifier(Modifier::BOLD)), head);
    match selected {
        Some(link) => draw_link(frame, view, link, body),
        None => draw_table(frame, view, &links, body),
    }
    draw_events(frame, view, selected, events);
    let hint = match selected {
        Some(_) => "Esc back  ↑↓ link  t time  p pause  q quit",
        None => "↑↓ select  Enter open  s sort  p pause  q quit",
    };
    let hint = if view.is_unicode { hint.to_owned() } else { hint.replace("↑↓", "Up/Down") };
    frame.render_widget(Paragraph::new(hint).style(Style::new().add_modifier(Modifier::DIM)), keys);
}

/// The answer in one line.
fn headline(view: &View) -> String {
    let Overview { links, host, at, .. } = &*view.overview;
    let needs = |link: &&LinkView| matches!(link.state, LinkHealth::Alarm | LinkHealth::Down);
    let mut bad: Vec<&LinkView> = links.iter().filter(needs).collect();
    bad.sort_by_key(|link| link.trouble());
    let worst = Vec::from_iter(bad.iter().map(|link| link.name.as_str()));
    let measured = links.iter().filter(|link| link.state != LinkHealth::Unknown).count();
    let answer = match (bad.len(), measured) {
        (_, 0) => "No link was measured yet".to_owned(),
        (0, 1) if links.len() == 1 => "The link replies".to_owned(),
        (0, measured) => format!("{measured} of {} links reply", links.len()),
        (count, _) => {
            let need = if count == 1 { "needs" } else { "need" };
            format!("{count} of {} {need} attention: {}", links.len(), worst.join(", "))
        }
    };
    let paused = if view.is_paused { "PAUSED  " } else { "" };
    view.text(&format!("{paused}{} {}  {answer}", host, view.clock(*at)))
}

fn draw_table(frame: &mut Frame, view: &mut View, links: &[usize], area: Rect) {
    let spark_width = usize::from(area.width.saturating_sub(66)).clamp(10, 60);
    let is_sorted_by = |order: SortOrder, title: &str| {
        let style = Style::new().add_modifier(Modifier::DIM);
        let style = if view.order == order { style.add_modifier(Modifier::UNDERLINED) } else { style };
        Cell::new(title.to_owned()).style(style)
    };
    let header = Row::new([
        is_sorted_by(SortOrder::Trouble, "state"),
        is_sorted_by(SortOrder::Name, "link"),
        is_sorted_by(SortOrder::P50, "       p50"),
        is_sorted_by(SortOrder::P99, "       p99"),
        is_sorted_by(SortOrder::Loss, &format!("{:>LAST_WIDTH$}", "loss or rate")),
        Cell::new("last hour").style(Style::new().add_modifier(Modifier::DIM)),
    ]);
    let rows = links.iter().map(|index| table_row(view, &view.overview.links[*index], spark_width));
    let widths = [
        Constraint::Length(5),
        Constraint::Min(14),
        Constraint::Length(FIGURE_WIDTH as u16),
        Constraint::Length(FIGURE_WIDTH as u16),
        Constraint::Length(LAST_WIDTH as u16),
        Constraint::Length(spark_width as u16),
    ];
    let highlight = Style::new().add_modifier(Modifier::REVERSED);
    let table = Table::new(rows.collect::<Vec<Row>>(), widths).header(header).row_highlight_style(highlight);
    frame.render_stateful_widget(table, area, &mut view.table);
}

fn table_row<'a>(view: &View, link: &LinkView, spark_width: usize) -> Row<'a> {
    let right = |text: String, width: usize| view.text(&format!("{text:>width$}"));
    let last = match (link.bits_per_second, loss(link)) {
        (Some(rate), _) => format_bit_rate(rate),
        (None, Some(loss)) => format!("{:.1} %", 100.0 * loss),
        (None, None) => "–".to_owned(),
    };
    // What a dead link measured last says less than when it died.
    let (first, second) = match link.down_since {
        Some(since) => ("down since".to_owned(), view.clock(since)),
        None => (latency(link.p50_ns), latency(link.p99_ns)),
    };
    let values = if link.is_tested { &link.spark_bps } else { &link.spark_ns };
    Row::new([
        Cell::new(view.text(link.state.word())).style(style_of(link.state)),
        Cell::new(view.text(&link.name)),
        Cell::new(right(first, FIGURE_WIDTH)),
        Cell::new(right(second, FIGURE_WIDTH)),
        Cell::new(right(last, LAST_WIDTH)),
        Cell::new(view.text(&spark(values, spark_width))),
    ])
}

/// The latest minutes, a character each; a minute without a median is a gap.
fn spark(values: &[Option<f64>], width: usize) -> String {
    let latest = &values[values.len().saturating_sub(width)..];
    let heights: Vec<f64> = latest.iter().map(|value| value.unwrap_or(0.0)).collect();
    let glyphs = sparkline_glyphs(&heights);
    glyphs.chars().zip(latest).map(|(glyph, value)| if value.is_some() { glyph } else { ' ' }).collect()
}

fn draw_link(frame: &mut Frame, view: &View, index: usize, area: Rect) {
    let link = &view.overview.links[index];
    let span = &SPANS[view.span];
    let columns = view.live.columns(index, span).unwrap_or_default();
    let mut figures = format!(
        "p50 {}   p99 {}   max {}   loss {} of {}",
        latency(link.p50_ns),
        latency(link.p99_ns),
        latency(link.max_ns.map(|time| time as f64)),
        link.lost,
        link.due
    );
    if let Some(rate) = link.bits_per_second {
        figures = format!("rate of the last test {}", format_bit_rate(rate));
    }
    let about = format!("{}, {}, {}", link.endpoint, link.protocol, link.workload);
    let since = link.down_since.map(|since| format!("  down since {}", view.clock(since)));
    let mut lines = vec![
        Line::from(vec![
            Span::styled(view.text(link.state.word()), style_of(link.state)),
            Span::raw(format!("  {}{}", view.text(&link.name), since.unwrap_or_default())),
        ]),
        Line::raw(view.text(&about)),
        Line::raw(view.text(&figures)),
    ];
    let reasons = link.alarms.iter().map(|rule| format!("alarm: {rule}")).chain(link.failure.clone());
    lines.extend(reasons.map(|reason| Line::styled(view.text(&reason), style_of(LinkHealth::Alarm))));
    lines.push(Line::raw(""));
    let height = usize::from(area.height).saturating_sub(lines.len());
    if link.is_tested {
        lines.extend(
            test_lines(&link.spark_bps, area.width).into_iter().map(|line| Line::raw(view.text(&line))),
        );
        return frame.render_widget(Paragraph::new(Text::from(lines)), area);
    }
    let map = heat_map(&columns, span.column, (usize::from(area.width), height));
    lines.extend(map.into_iter().map(|line| Line::raw(view.text(&shades(&line, view.is_unicode)))));
    if let (Some(first), Some(last)) = (columns.first(), columns.last()) {
        let times = format!("{} to {}", view.clock(first.start), view.clock(last.start + last.seconds));
        let each = format!("{} s a column; x: lost; blank: not measured", span.column);
        lines.push(Line::styled(
            view.text(&format!("{times}, {each}")),
            Style::new().add_modifier(Modifier::DIM),
        ));
    }
    frame.render_widget(Paragraph::new(Text::from(lines)), area);
}

/// The rates of the last tests.
fn test_lines(rates: &[Option<f64>], width: u16) -> Vec<String> {
    let known = || rates.iter().flatten().copied();
    let Some(low) = known().min_by(f64::total_cmp) else {
        return vec!["No rate was measured yet.".to_owned()];
    };
    let high = known().fold(low, f64::max);
    let range =
        format!("{} to {} in the last {} tests", format_bit_rate(low), format_bit_rate(high), rates.len());
    vec![spark(rates, usize::from(width)), range]
}

/// Width of the labels of a heat map.
const LABEL_WIDTH: usize = 10;

/// Rows of a heat map, slowest first, and one with losses; levels 0 to 4 as digits. `length`: seconds of a column.
fn heat_map(columns: &[Column], length: i64, (width, height): (usize, usize)) -> Vec<String> {
    let cells = || columns.iter().flat_map(|column| column.cells.iter().map(|(cell, _)| *cell));
    let (Some(low), Some(high)) = (cells().min(), cells().max()) else {
        let [lost, due] = columns.iter().fold([0, 0], |[lost, due], c| [lost + c.lost, due + c.due]);
        let text = if due > 0 {
            format!("No reply in this time: {lost} of {due} probes were lost.")
        } else {
            "Nothing was measured in this time.".to_owned()
        };
        return vec![text];
    };
    // Two lines stay for losses and times.
    let rows = height.saturating_sub(2).clamp(1, 16);
    let step = usize::from(high - low + 1).div_ceil(rows).max(1);
    let rows = usize::from(high - low + 1).div_ceil(step);
    let last = columns.last().map_or(0, |column| column.start);
    let places = width.saturating_sub(LABEL_WIDTH + 1).max(1);
    let mut map = vec![vec![' '; places]; rows + 1];
    for column in columns {
        let back = ((last - column.start) / length) as usize;
        let Some(place) = places.checked_sub(back + 1) else { continue };
        let mut shares = vec![0.0; rows];
        for (cell, replies) in &column.cells {
            shares[usize::from(cell - low) / step] += f64::from(*replies) / column.due.max(1) as f64;
        }
        for (row, share) in shares.iter().enumerate() {
            map[rows - 1 - row][place] = level(*share);
        }
        map[rows][place] = if column.lost > 0 { 'x' } else { level(0.0) };
    }
    let label = |row: usize| match row {
        row if row == rows => "lost".to_owned(),
        row if row % 3 == 0 || row + 1 == rows => {
            format_nanoseconds(Column::cell_begin_ns(low + ((rows - 1 - row) * step) as u16))
        }
        _ => String::new(),
    };
    let line = |(row, places): (usize, &Vec<char>)| {
        format!("{:>LABEL_WIDTH$} {}", label(row), String::from_iter(places))
    };
    map.iter().enumerate().map(line).collect()
}

/// How dark a cell is.
fn level(share: f64) -> char {
    match share {
        share if share <= 0.0 => '0',
        share if share < 0.05 => '1',
        share if share < 0.2 => '2',
        share if share < 0.5 => '3',
        _ => '4',
    }
}

/// The levels behind the label as characters.
fn shades(line: &str, is_unicode: bool) -> String {
    let characters = if is_unicode { ['·', '░', '▒', '▓', '█'] } else { ['.', '-', '+', '#', '@'] };
    let shade =
        |c: char| c.to_digit(10).and_then(|level| characters.get(level as usize)).copied().unwrap_or(c);
    let (label, cells): (String, String) =
        (line.chars().take(LABEL_WIDTH).collect(), line.chars().skip(LABEL_WIDTH).collect());
    label + &cells.chars().map(shade).collect::<String>()
}

fn draw_events(frame: &mut Frame, view: &View, link: Option<usize>, area: Rect) {
    let name = link.map(|index| view.overview.links[index].name.as_str());
    let fits = |event: &&linkgauge::monitor::LiveEvent| name.is_none() || event.link.as_deref() == name;
    let events = view.overview.events.iter().filter(fits).take(usize::from(EVENT_LINES) - 1);
    let title = Line::styled("events", Style::new().add_modifier(Modifier::DIM));
    let lines = events.map(|event| Line::raw(view.text(&format!("{} {}", view.clock(event.at), event.text))));
    frame.render_widget(Paragraph::new(std::iter::once(title).chain(lines).collect::<Vec<Line>>()), area);
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{self, Write};
    use std::rc::Rc;

    use linkgauge::monitor::{Config, MonitorEvent, WatchState};
    use linkgauge::sample::{Window, WindowCounts};
    use ratatui::backend::{CrosstermBackend, TestBackend};
    use ratatui::{Terminal, TerminalOptions, Viewport};

    use super::*;

    const NOW: i64 = 1_790_000_000;

    /// A link with some minutes of slices; its times depend on the number, as its losses do.
    fn link(name: &str, number: u64, now: i64) -> WatchState {
        let text = format!("[[watch]]\nurl = \"mem://{number}\"\nprotocol = \"echo\"");
        let mut watch = Config::from_toml(&text).unwrap().watches.remove(0);
        // Files with control characters in a name are refused; what is shown is safe all the same.
        name.clone_into(&mut watch.name);
        let mut state = WatchState::new(&watch);
        for slice in 0..60 {
            let counts =
                WindowCounts { measured_ms: 10_000, due: 100, lost: number, ..WindowCounts::default() };
            let mut window = Window::new(counts);
            let time = |reply: u64| {
                1_000_000 * (number + 1) + 1_000 * (reply * reply + (slice as u64 * 7919 + now as u64) % 97)
            };
            (number..100).for_each(|reply| window.record(time(reply)));
            state.recent.push_back((now - 600 + 10 * slice, window));
        }
        state.is_up = Some(number != 2);
        state
    }

    fn monitor() -> (Arc<Live>, View) {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let live = Arc::new(Live::new("office".to_owned(), at(NOW - 600)));
        let down = MonitorEvent::Down { name: "printer".to_owned(), reason: None };
        live.note(at(NOW - 30), &down, "printer: down: the last 3 probes have no reply".to_owned());
        live.update(
            &[link("gateway", 0, NOW), link("branch\u{1b}[2J", 1, NOW), link("printer", 2, NOW)],
            at(NOW),
        );
        let view = View::new(live.clone(), true, TimeZone::UTC);
        (live, view)
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn names(lines: &[String]) -> Vec<&str> {
        lines[2..5].iter().map(|line| line.split_whitespace().nth(1).unwrap()).collect()
    }

    #[test]
    fn links_stand_in_the_order_that_was_chosen() {
        let (_live, mut view) = monitor();
        let lines = drawn(&mut view, 80, 12);
        assert!(lines[0].starts_with("office 14:13:20  1 of 3 needs attention: printer"), "{lines:#?}");
        assert!(lines[1].starts_with("state link") && lines[1].ends_with("last hour"), "{lines:#?}");
        assert_eq!(names(&lines), ["printer", "branch�[2J", "gateway"]);
        assert!(
            lines[2].starts_with("DOWN") && lines[2].contains(" 2.0 % ") && lines[2].contains('█'),
            "{lines:#?}"
        );
        assert!(lines[8].starts_with("14:12:50 printer: down"), "{lines:#?}");
        assert!(lines[11].ends_with("q quit"), "{lines:#?}");
        view.press(KeyCode::Char('s'));
        assert_eq!(names(&drawn(&mut view, 80, 12)), ["branch�[2J", "gateway", "printer"]);
        view.press(KeyCode::Char('s'));
        assert_eq!(names(&drawn(&mut view, 80, 12)), ["printer", "branch�[2J", "gateway"], "slowest first");
        assert!(drawn(&mut view, 40, 8).iter().all(|line| line.chars().count() <= 40));
        assert!(view.press(KeyCode::Char('q')));
    }

    #[test]
    fn a_link_opens_into_its_history() {
        let (_live, mut view) = monitor();
        view.press(KeyCode::Down);
        view.press(KeyCode::Enter);
        let lines = drawn(&mut view, 100, 30);
        assert!(
            lines[1].contains("branch�[2J") && lines[2].starts_with("mem://1, echo, latency"),
            "{lines:#?}"
        );
        assert!(lines[3].contains("loss 6 of 600"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("ms ") && line.contains('▒')), "{lines:#?}");
        let lost = lines.iter().find(|line| line.trim_start().starts_with("lost ")).unwrap();
        assert_eq!(lost.matches('x').count(), 60, "{lines:#?}");
        view.press(KeyCode::Tab);
        let lost = drawn(&mut view, 100, 30)
            .into_iter()
            .find(|line| line.trim_start().starts_with("lost "))
            .unwrap();
        assert!((10..=11).contains(&lost.matches('x').count()), "{lost}");
        view.press(KeyCode::Esc);
        assert!(drawn(&mut view, 100, 30)[1].starts_with("state"));
        for size in [(1, 1), (10, 3), (30, 10), (300, 90)] {
            view.press(KeyCode::Enter);
            drawn(&mut view, size.0, size.1);
        }
        view.is_unicode = false;
        assert!(drawn(&mut view, 100, 30).join("").replace('\u{fffd}', "").is_ascii());
    }

    #[test]
    fn a_pause_holds_the_state() {
        let (live, mut view) = monitor();
        assert!(view.take_state() && !view.take_state(), "one drawing for one state");
        view.press(KeyCode::Char('p'));
        live.update(&[link("gateway", 0, NOW + 10)], Timestamp::from_second(NOW + 10).unwrap());
        assert!(view.take_state(), "the key");
        assert!(!view.take_state());
        assert!(drawn(&mut view, 80, 12)[0].starts_with("PAUSED  office 14:13:20"));
        view.press(KeyCode::Char('p'));
        assert!(view.take_state());
        assert!(drawn(&mut view, 80, 12)[0].starts_with("office 14:13:30  The link replies"));
    }

    /// What was written to a terminal.
    #[derive(Clone, Default)]
    struct Written(Rc<RefCell<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_new_state_takes_few_bytes() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let live = Arc::new(Live::new("office".to_owned(), at(NOW - 600)));
        let states = |now: i64| {
            (0..20).map(|number| link(&format!("link {number:02}"), number, now)).collect::<Vec<_>>()
        };
        live.update(&states(NOW), at(NOW));
        let mut view = View::new(live.clone(), true, TimeZone::UTC);
        let written = Written::default();
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::new(0, 0, 80, 30)) };
        let mut terminal = Terminal::with_options(CrosstermBackend::new(written.clone()), options).unwrap();
        terminal.draw(|frame| draw(frame, &mut view)).unwrap();
        let first = std::mem::take(&mut *written.0.borrow_mut()).len();
        live.update(&states(NOW + 10), at(NOW + 10));
        assert!(view.take_state());
        terminal.draw(|frame| draw(frame, &mut view)).unwrap();
        let second = written.0.borrow().len();
        assert!(second > 0 && second < 2_000 && second < first, "{first} bytes, then {second}");
    }
}
