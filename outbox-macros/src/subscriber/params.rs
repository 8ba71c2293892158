//! The parameters of a handler: how each is made, and which cannot be.

use syn::{GenericArgument, PathArguments, PathSegment, Type, TypeReference};

use crate::errors::Errors;

/// How one argument of the call is made.
pub(super) enum Param<'a> {
    /// The payload as `&[u8]`.
    Slice(&'a Type),
    /// The payload as `Bytes`.
    Bytes(&'a Type),
    /// The payload as `&str`.
    Str(&'a Type),
    /// The payload as a value.
    Payload(&'a Type),
    /// Several payloads, with the option `batch`.
    Batch { whole: &'a Type, message: &'a Type },
    /// Any other parameter.
    Extractor(&'a Type),
}

const CONCRETE: &str = "a handler is one concrete fn; name the type instead of `impl`";
/// A macro sees nothing but names.
pub(super) const YOURS: &str = "; if this is a type of your own, import it `as` another name";
/// Types of this crate that have parameters. Without them they are other types.
const GENERIC: [&str; 3] = ["Batch", "State", "Tx"];
const EXTRACTORS: [&str; 5] = ["State", "Context", "Headers", "Publisher", "Tx"];

pub(super) fn payload<'a>(ty: &'a Type, alone: bool, errors: &mut Errors) -> Param<'a> {
    let name = last_segment(ty).filter(|name| !GENERIC.contains(&&**name) || is_generic(ty));
    if let Some(extractor) = EXTRACTORS.iter().find(|name_of| name.as_deref() == Some(**name_of)) {
        let shown = match *extractor {
            "State" => "State<..>",
            "Tx" => "Tx<..>",
            plain => plain,
        };
        let end = if alone { "; if you need none, take `_: &[u8]` first" } else { "" };
        let moved = format!("the first parameter is the payload; move `{shown}` behind it");
        errors.at(ty, format!("{moved}{end}{YOURS}"));
        Param::Extractor(ty)
    } else if name.as_deref() == Some("Batch") {
        let add = "a `Batch` needs the option `batch`; add `batch = 100`";
        errors.at(ty, format!("{add}{YOURS}"));
        Param::Payload(ty)
    } else if let Some(borrowed) = borrowed(ty) {
        match borrowed {
            Borrowed::Bytes => Param::Slice(ty),
            Borrowed::Text => Param::Str(ty),
            Borrowed::Other => {
                let instead = "take the value itself; it may borrow inside, as `Order<'_>` does";
                errors.at(ty, format!("{instead}; only `&str` and `&[u8]` are taken by reference"));
                Param::Payload(ty)
            }
        }
    } else if is_bytes(ty) {
        Param::Bytes(ty)
    } else {
        if let Type::ImplTrait(_) = ungrouped(ty) {
            errors.at(ty, CONCRETE);
        }
        Param::Payload(ty)
    }
}

pub(super) fn is_bytes(ty: &Type) -> bool {
    last_segment(ty).as_deref() == Some("Bytes")
}

pub(super) fn other<'a>(ty: &'a Type, errors: &mut Errors) -> Param<'a> {
    // An extractor outlives what it was made from, so it has to own what it takes.
    match ungrouped(ty) {
        Type::Reference(_) => {
            errors.at(ty, "take an owned value; only the payload, which comes first, may borrow");
        }
        _ => inside(ty, errors),
    }
    Param::Extractor(ty)
}

pub(super) fn inside(ty: &Type, errors: &mut Errors) {
    match ungrouped(ty) {
        Type::ImplTrait(_) => {
            errors.at(ty, CONCRETE);
        }
        Type::Reference(reference) if !is_static(reference) => {
            errors.at(reference, "take an owned value; this cannot borrow");
        }
        Type::Array(array) => inside(&array.elem, errors),
        Type::Slice(slice) => inside(&slice.elem, errors),
        Type::Tuple(tuple) => tuple.elems.iter().for_each(|each| inside(each, errors)),
        Type::Path(path) => {
            path.path.segments.iter().flat_map(arguments).for_each(|each| inside(each, errors));
        }
        // Other types may name references without borrowing, above all fn pointers.
        _ => {}
    }
}

/// The types in the angle brackets of a segment.
pub(super) fn arguments(segment: &PathSegment) -> impl Iterator<Item = &Type> {
    let listed = match &segment.arguments {
        PathArguments::AngleBracketed(listed) => Some(listed.args.iter()),
        _ => None,
    };
    listed.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

fn is_static(reference: &TypeReference) -> bool {
    reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static")
}

enum Borrowed {
    Bytes,
    Text,
    Other,
}

/// What a reference borrows. `None` for everything else.
fn borrowed(ty: &Type) -> Option<Borrowed> {
    let Type::Reference(reference) = ungrouped(ty) else { return None };
    let named = reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident != "_");
    if reference.mutability.is_some() || named {
        return Some(Borrowed::Other);
    }
    Some(match ungrouped(&reference.elem) {
        Type::Slice(slice) if last_segment(&slice.elem).as_deref() == Some("u8") => Borrowed::Bytes,
        other if last_segment(other).as_deref() == Some("str") => Borrowed::Text,
        _ => Borrowed::Other,
    })
}

/// The last segment of a path.
pub(super) fn last(ty: &Type) -> Option<&PathSegment> {
    match ungrouped(ty) {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

pub(super) fn last_segment(ty: &Type) -> Option<String> {
    last(ty).map(|segment| segment.ident.to_string())
}

pub(super) fn is_generic(ty: &Type) -> bool {
    last(ty).is_some_and(|segment| !segment.arguments.is_empty())
}

/// The type without the groups that `macro_rules!` and parentheses put around it.
pub(super) fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => ungrouped(&group.elem),
        Type::Paren(paren) => ungrouped(&paren.elem),
        other => other,
    }
}
