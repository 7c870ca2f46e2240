//! `docs/behaviours.md` says where each behaviour is shown. Whether that is so.

use std::fs;
use std::path::{Path, PathBuf};

/// A row of one of the page's tables, with those below it that go on with it.
struct Row {
    /// "b" for a behaviour, "d" for a decision, "l" for a rule of delayed delivery, "p" for a behaviour of a delayed message store.
    letter: char,
    number: usize,
    /// Where it is shown, or why not.
    shown: String,
}

#[test]
fn every_number_is_on_the_page_and_every_test_on_it_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/behaviours.md")).expect("the page");
    let sources = sources(&root.join("tests/conformance"));
    let rows = rows(&page);
    let mut problems = Vec::new();
    for (letter, last) in [('b', 109), ('d', 40), ('l', 19), ('p', 75)] {
        let numbers: Vec<usize> = rows.iter().filter(|row| row.letter == letter).map(|row| row.number).collect();
        if numbers != (1..=last).collect::<Vec<_>>() {
            problems.push(format!("{letter}1 to {letter}{last} should have a row each, in order: {numbers:?}"));
        }
    }
    for row in &rows {
        let Row { letter, number, shown } = row;
        let links: Vec<(&str, &str)> = shown.split('[').filter_map(link).collect();
        let excuse = ["Not there yet: ", "No meaning here: "].into_iter().find(|excuse| shown.starts_with(excuse));
        if links.is_empty() && excuse.is_none() {
            problems.push(format!("{letter}{number} names no test, and does not say why"));
        }
        for (name, target) in &links {
            if let Err(problem) = shows(root, row, name, target) {
                problems.push(format!("{letter}{number}: {problem}"));
            }
        }
        let names =
            sources.iter().flat_map(|source| source.split("fn ").skip(1)).filter_map(|rest| rest.split('(').next());
        let forgotten = names.filter(|name| carries(name, row) && links.iter().all(|(link, _)| link != name));
        problems.extend(forgotten.map(|name| format!("{letter}{number} does not name {name}")));
    }
    assert!(problems.is_empty(), "docs/behaviours.md:\n{}", problems.join("\n"));
}

/// The rows of all tables. One whose first two cells are empty, "| | | [`…`](…) |", goes on with the row above it.
fn rows(page: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in page.lines() {
        if let Some(more) = line.strip_prefix("| | | ") {
            let last = rows.last_mut().expect("a row to go on with");
            last.shown.push_str(more);
        } else {
            rows.extend(row(line));
        }
    }
    rows
}

/// "| 34 | What it is. | Where it is shown. |", with a D, an L or a P in front of the number of what is no behaviour of Service Broker.
fn row(line: &str) -> Option<Row> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let (number, _, shown) = (cells.next()?, cells.next()?, cells.next()?);
    let (letter, number) = match number.split_at_checked(1) {
        Some(("D", number)) => ('d', number),
        Some(("L", number)) => ('l', number),
        Some(("P", number)) => ('p', number),
        _ => ('b', number),
    };
    let number = number.parse().ok()?;
    assert!(cells.next().is_none(), "a row has three cells: {line}");
    Some(Row { letter, number, shown: shown.to_owned() })
}

/// The name and the target of a link, after its "[".
fn link(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once("](../")?;
    Some((name.trim_matches(['`', '“', '”']), rest.split_once(')')?.0))
}

/// What registers a test in JavaScript. Whatever else a line begins with, as one that is skipped does, is none.
const ACTIVE: [&str; 4] = ["inPage(", "inPageAndWorkers(", "withPages(", "test("];

/// A test has to carry the row's number, in its name or in the comment before it.
fn shows(root: &Path, row: &Row, name: &str, target: &str) -> Result<(), String> {
    let source = fs::read_to_string(root.join(target)).map_err(|problem| format!("{target}: {problem}"))?;
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    // Some are made for several cases, which stand behind the title.
    let (titles, is_script) = ([format!("\"{name}\","), format!("`{name} (${{")], target.ends_with(".mjs"));
    let is_it = |line: &&str| {
        if is_script {
            ACTIVE.iter().any(|call| {
                line.strip_prefix(call).is_some_and(|rest| titles.iter().any(|title| rest.starts_with(title)))
            })
        } else {
            line.split_once("fn ").is_some_and(|(_, rest)| rest.split('(').next() == Some(name))
        }
    };
    let place = lines.iter().position(is_it).ok_or_else(|| format!("{target} has no test {name:?} that runs"))?;
    let comment = lines[..place].iter().rev().take_while(|line| line.starts_with("//"));
    if carries(&name.to_lowercase(), row) || comment.clone().any(|line| carries(&line.to_lowercase(), row)) {
        return Ok(());
    }
    Err(format!("{name} in {target} carries the number neither in its name nor in the comment before it"))
}

/// Whether a text has the number among its words: b7, b07.
fn carries(text: &str, row: &Row) -> bool {
    text.split(|character: char| !character.is_ascii_alphanumeric())
        .filter_map(|word| word.strip_prefix(row.letter))
        .any(|digits| digits.parse() == Ok(row.number))
}

/// What the files of a folder, and of those in it, say.
fn sources(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let of =
        |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![fs::read_to_string(&path).expect("a file")] };
    paths.flat_map(of).collect()
}
