//! Counts of what happened in a run: a checker that is silent says something only where enough happened.

/// A struct of counts that are added up over many runs. Its fields are numbers, or other such structs.
#[macro_export]
macro_rules! counts {
    ($(#[$of_struct:meta])* $struct_is:vis struct $name:ident {
        $($(#[$of_field:meta])* $field_is:vis $field:ident: $count:ty),+ $(,)?
    }) => {
        $(#[$of_struct])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $struct_is struct $name {
            $($(#[$of_field])* $field_is $field: $count),+
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

/// Asserts that enough happened in so many seeds: of each count at least so many a seed, on the average. Of fewer than
/// [`MANY_SEEDS`](crate::seeds::MANY_SEEDS) nothing is asked, for a few seeds may be calm.
///
/// ```
/// let (seeds, crashes, views) = (60, 64, 500);
/// verbena_testkit::assert_enough!(seeds, crashes => 1.0, views => 7.5);
/// ```
#[cfg(feature = "sim")]
#[macro_export]
macro_rules! assert_enough {
    ($seeds:expr, $($count:expr => $each:expr),+ $(,)?) => {{
        $($crate::seeds::assert_one_enough($seeds, stringify!($count), $count, $each);)+
    }};
}

#[cfg(test)]
mod tests {
    counts! {
        struct Inner { a: u64 }
    }

    counts! {
        /// A struct in a struct.
        struct Outer { inner: Inner, b: u64 }
    }

    #[test]
    fn counts_are_added_up_field_by_field() {
        let mut all = Outer::default();
        for nth in 1..=3 {
            all += Outer { inner: Inner { a: nth }, b: 10 * nth };
        }
        assert_eq!(all, Outer { inner: Inner { a: 6 }, b: 60 });
    }

    #[cfg(feature = "sim")]
    #[test]
    fn a_few_seeds_may_be_calm_and_many_may_not() {
        let (none, some) = (0, 60);
        assert_enough!(1, none => 1.0);
        assert_enough!(60, some => 1.0, none => 0.0);
        let failure = std::panic::catch_unwind(|| assert_enough!(60, some => 1.0, none => 0.1)).unwrap_err();
        let said = failure.downcast_ref::<String>().unwrap();
        assert!(said.starts_with("too little of none: 0 in 60 seeds"), "{said}");
    }
}
