package link

// This file defines Free, the values of one type that are kept for reuse.

// Free has values that are kept for reuse.
type Free[T any] []*T

// Take returns a kept value, unchanged since it was kept, or a new one.
func (f *Free[T]) Take() *T {
	n := len(*f)
	if n == 0 {
		return new(T)
	}
	v := (*f)[n-1]
	*f = (*f)[:n-1]
	return v
}

// Keep keeps v for reuse.
func (f *Free[T]) Keep(v *T) { *f = append(*f, v) }
