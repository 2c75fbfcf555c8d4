//! The columns of a table, as the workloads define them.

#[derive(Clone, Copy)]
pub struct TableColumn {
    pub title: &'static str,
    pub kind: ColumnKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// A property of the case. If all cases agree, it may move to the heading: `unit` names it there.
    Case { before: &'static str, after: &'static str, usual: &'static str },
    /// A result.
    Figure,
    /// A result of few cases. The column is omitted if empty.
    Optional,
    /// A result of few cases, which may be removed to make room. The column is omitted if empty.
    Expendable,
    /// A result of few cases, which only the full report shows. The column is omitted if empty.
    Extra,
    /// A result of few cases, which is removed first and then printed below the table. The column is omitted if empty.
    Detail,
}

pub(crate) const fn case_column(
    title: &'static str,
    before: &'static str,
    after: &'static str,
    usual: &'static str,
) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Case { before, after, usual } }
}

pub(crate) const fn figure_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Figure }
}

pub(crate) const fn optional_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Optional }
}

pub(crate) const fn expendable_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Expendable }
}

pub(crate) const fn extra_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Extra }
}

pub(crate) const fn detail_column(title: &'static str) -> TableColumn {
    TableColumn { title, kind: ColumnKind::Detail }
}
