//! `archive`: the rows that END copied.

use std::rc::Rc;

use num_traits::ToPrimitive;

use super::{Extent, PAGE_BYTES, PAGE_ROWS, Page, RowFilter};
use crate::archive::Archived;
use crate::driver::Driver;
use crate::message::count;
use crate::rows::Rows;
use crate::stop::Outcome;
use crate::store::{Bound, Key, Range, StoreName};

/// Records that are read at once.
const RECORDS: u32 = 32;

/// What the archive shows, oldest first. `position` is the key of the last record that was read, and how many rows may still come.
pub(crate) async fn select_archive(
    driver: &mut Driver<'_>,
    filter: &RowFilter,
    position: Option<&[f64]>,
    extent: Extent,
) -> Outcome<Page<Rows>> {
    let direction = filter.direction();
    let mut range = Range::all();
    let mut left = filter.limit().unwrap_or(u64::MAX);
    if let Some([key @ .., rest]) = position {
        let key = Bound::Excluding(Key::List(key.iter().map(|part| Key::Number(*part)).collect()));
        left = rest.to_u64().unwrap_or(u64::MAX);
        if filter.reverse { range.upper = key } else { range.lower = key }
    }
    let is_wanted = |archived: &Archived| {
        let same = |wanted: &Option<Rc<str>>, value: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(value))
        };
        let owner = &archived.owner;
        filter.queue.as_deref().is_none_or(|queue| *queue == *archived.queue)
            && same(&filter.conversation, &owner.handle)
            && same(&filter.group, &owner.group_id)
            && same(&filter.conversation_id, &owner.conversation_id)
    };
    let mut page = Page { rows: Vec::new(), next: None };
    let (mut rows, mut bytes) = (0, 0.0);
    loop {
        let records = driver.tx.get_range(StoreName::Archive, &range, Some(RECORDS), direction).await?;
        let is_last = count(records.len()) < u64::from(RECORDS);
        for record in records {
            let archived = Archived::from_record(&record)?;
            let key = archived.key.clone();
            if is_wanted(&archived) {
                let mut stretches = filter.cut(&archived.run, 0, archived.run.count, archived.status, None);
                if filter.reverse {
                    stretches.reverse();
                }
                for stretch in stretches {
                    let (from, to, status) = filter.limited(stretch, left);
                    if from >= to {
                        return Ok(page);
                    }
                    let mut part = Rows::of(&driver.catalog, &archived.owner, &archived.run, from, to, status);
                    part.is_reversed = filter.reverse;
                    part.archived = Some((archived.at, Rc::clone(&archived.queue)));
                    rows += count(part.count);
                    left -= count(part.count);
                    bytes += archived.run.columns.size;
                    page.rows.push(part);
                }
            }
            let next = Key::List(key.iter().map(|part| Key::Number(*part)).collect());
            if filter.reverse {
                range.upper = Bound::Excluding(next)
            } else {
                range.lower = Bound::Excluding(next)
            }
            if extent == Extent::Page && (rows >= PAGE_ROWS || bytes >= PAGE_BYTES) {
                let mut position = key;
                position.push(left.to_f64().unwrap_or(f64::MAX));
                page.next = Some(position);
                return Ok(page);
            }
        }
        if is_last {
            return Ok(page);
        }
    }
}
