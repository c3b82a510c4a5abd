//! The key table as a tree, so that a document can be walked beside it.

use crate::field::{Field, Kind};
use crate::table;
use std::sync::LazyLock;

/// What may stand at one place of the document.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// The key pattern.
    pub(crate) key: String,
    /// The last part of the key pattern.
    pub(crate) name: String,
    /// Its row; a section that has nothing to say has none.
    pub(crate) field: Option<&'static Field>,
    /// Members by name, in the order of the table.
    pub(crate) named: Vec<Shape>,
    /// Any other member: a map.
    pub(crate) each: Option<Box<Shape>>,
    /// An element: a list of objects.
    pub(crate) item: Option<Box<Shape>>,
}

static ROOT: LazyLock<Shape> = LazyLock::new(|| {
    let mut root = Shape::default();
    for field in table::fields() {
        root.insert(field);
    }
    root
});

/// The whole document.
pub(crate) fn root() -> &'static Shape {
    &ROOT
}

impl Shape {
    fn insert(&mut self, field: &'static Field) {
        let mut here = self;
        for part in field.key.split('.') {
            let (name, list) = match part.strip_suffix("[]") {
                Some(name) => (name, true),
                None => (part, false),
            };
            here = if name.starts_with('<') {
                here.each(name)
            } else {
                here.named(name)
            };
            if list {
                here = here.item();
            }
        }
        here.field = Some(field);
    }

    fn below(&self, name: &str) -> Shape {
        let key = if self.key.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.key)
        };
        Shape {
            key,
            name: name.to_string(),
            ..Shape::default()
        }
    }

    fn named(&mut self, name: &str) -> &mut Shape {
        let index = match self.named.iter().position(|shape| shape.name == name) {
            Some(index) => index,
            None => {
                self.named.push(self.below(name));
                self.named.len() - 1
            }
        };
        &mut self.named[index]
    }

    fn each(&mut self, name: &str) -> &mut Shape {
        let below = self.below(name);
        self.each.get_or_insert_with(|| Box::new(below))
    }

    fn item(&mut self) -> &mut Shape {
        let shape = Shape {
            key: format!("{}[]", self.key),
            name: self.name.clone(),
            ..Shape::default()
        };
        self.item.get_or_insert_with(|| Box::new(shape))
    }

    pub(crate) fn member(&self, name: &str) -> Option<&Shape> {
        self.named.iter().find(|shape| shape.name == name)
    }

    /// The shape at a key pattern.
    pub(crate) fn find(&self, pattern: &str) -> Option<&Shape> {
        let mut here = self;
        for part in pattern.split('.') {
            let name = part.strip_suffix("[]").unwrap_or(part);
            here = if name.starts_with('<') {
                here.each.as_deref()?
            } else {
                here.member(name)?
            };
            if part.ends_with("[]") {
                here = here.item.as_deref()?;
            }
        }
        Some(here)
    }

    /// True for an object or a map: its value has members that are walked.
    pub(crate) fn is_object(&self) -> bool {
        match self.field {
            None => true,
            Some(field) => matches!(field.kind, Kind::Section { .. } | Kind::Map { .. }),
        }
    }

    /// True for a section that stays absent unless someone writes it.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(
            self.field,
            Some(Field {
                kind: Kind::Section { optional: true },
                ..
            })
        )
    }

    /// The names of the variables of this key and of all below it, full.
    pub(crate) fn env_names(&self) -> Vec<String> {
        let own = self.field.and_then(Field::env_name);
        own.into_iter()
            .chain(self.named.iter().flat_map(Shape::env_names))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::field::Fallback;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_its_place_and_its_words() {
        let mut keys = BTreeSet::new();
        let mut variables = BTreeSet::new();
        for field in table::fields() {
            assert!(keys.insert(field.key), "{} stands twice", field.key);
            if let Some(name) = field.env {
                assert!(variables.insert(name), "{name} stands twice");
            }
            assert!(!field.doc.is_empty(), "{} has no words", field.key);
            let shape = root().find(field.key).unwrap();
            assert_eq!(shape.key, field.key);
            if field.required {
                assert_eq!(field.default, Fallback::Unset, "{}", field.key);
            }
            if !field.is_container() {
                assert!(
                    shape.named.is_empty() && shape.each.is_none() && shape.item.is_none(),
                    "{}",
                    field.key
                );
            }
            if matches!(field.kind, Kind::Records { .. }) {
                assert!(shape.item.is_some(), "{}", field.key);
            }
            if matches!(field.kind, Kind::Map { .. }) {
                assert!(shape.each.is_some(), "{}", field.key);
            }
        }
    }
}
