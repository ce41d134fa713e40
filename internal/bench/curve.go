//go:build linux

package bench

// This file measures curves: how cost grows with one quantity, and at which values it jumps.

import (
	"context"
	"fmt"
	"slices"
)

// curve describes a series of measurements. One quantity x has another value in each of them, and
// the cost of a request is measured at each value.
type curve struct {
	id, name, note, x string
	points            []point
	only              string // name of the only peer of this curve; empty: Ringside and nutcracker are measured

	// share is the value of x at which the part of the cost of a request that grows with x equals
	// the fixed part. The cost may grow with 1 + x/share. 0: it may not grow.
	share float64
}

// point is one measurement of a curve: the value x of its quantity, and the scenario to run.
type point struct {
	x     float64
	label string
	work  scenario
	loops int // number of Ringside's loops; 0: 1

	// prepare returns the servers for this point of the curve, and may change the scenario for
	// them. nil: the three usual servers.
	prepare func(context.Context, *bench, *scenario) (Pool, error)
}

// Curves measures the named curves, or all curves if there are no names. It measures Ringside and
// its variants, and nutcracker where it supports the load.
func Curves(ctx context.Context, c Config, ids []string) (*Report, error) {
	names := []string{"ringside", "nutcracker"}
	for _, v := range c.Also {
		names = append(names, v.Name)
	}
	b, err := c.open(ctx, names...)
	if err != nil {
		return nil, err
	}
	defer b.close()
	all := curves(b.cpusFor)
	for _, id := range ids {
		if !slices.ContainsFunc(all, func(c curve) bool { return c.id == id }) {
			return nil, fmt.Errorf("no curve %q: use %s", id, curveNames())
		}
	}
	r := b.newReport()
	if r.Placement, err = b.comparePlacement(ctx); err != nil {
		return nil, err
	}
	for _, c := range all {
		if len(ids) > 0 && !slices.Contains(ids, c.id) {
			continue
		}
		curve, err := b.curve(ctx, c)
		if err != nil {
			return nil, err
		}
		r.Curves = append(r.Curves, curve)
	}
	return b.finish(r), nil
}

func (b *bench) curve(ctx context.Context, c curve) (*Curve, error) {
	out := &Curve{ID: c.id, Name: c.name, Note: c.note, X: c.x}
	if c.share > 0 {
		out.Growth = fmt.Sprintf("The work of a request grows with 1 + x/%.0f, and cost may grow as much.", c.share)
	}
	for _, p := range c.points {
		result, err := b.point(ctx, c, p)
		if err != nil {
			return nil, err
		}
		out.Rows = append(out.Rows, &Point{X: p.x, Label: p.label, Result: *result})
	}
	// A row counts as a cliff only if it is one again after new measurements of this row and the
	// row before it.
	for again := range cliffAgain + 1 {
		for i := 1; i < len(out.Rows); i++ {
			out.Rows[i].Cliffs = cliffs(out.Rows[i-1], out.Rows[i], c.share)
		}
		if again == cliffAgain {
			break
		}
		for i, row := range out.Rows {
			if len(row.Cliffs) == 0 && (i+1 == len(out.Rows) || len(out.Rows[i+1].Cliffs) == 0) {
				continue
			}
			more, err := b.point(ctx, c, c.points[i])
			if err != nil {
				return nil, err
			}
			row.Add(more)
			b.repeated += b.Rounds
		}
	}
	return out, nil
}

// point measures the point p of the curve c.
func (b *bench) point(ctx context.Context, c curve, p point) (*Result, error) {
	s := p.work
	s.ID, s.Name, s.Base, s.only = c.id+" "+p.label, c.name, "nutcracker", c.only
	if p.loops > 0 {
		b.loops, b.proxyCPUs = p.loops, b.cpusFor(p.loops)
		defer func() { b.loops, b.proxyCPUs = 1, []int{b.ProxyCPU} }()
	}
	if p.prepare != nil {
		usual := b.pool
		defer func() { b.pool = usual }()
		prepared, err := p.prepare(ctx, b, &s)
		if err != nil {
			return nil, fmt.Errorf("curve %s: %w", s.ID, err)
		}
		defer prepared.Stop()
		b.pool = prepared
	}
	return b.scenario(ctx, s)
}

// cpusFor returns the CPUs of a proxy with the given number of loops: one CPU for each loop, or
// fewer if the load needs the others.
func (b *bench) cpusFor(loops int) []int {
	cpus := []int{b.ProxyCPU}
	for _, id := range slices.Backward(b.allCPUs) {
		if len(cpus) < loops && !slices.Contains(cpus, id) && !slices.Contains(b.LoadCPUs, id) {
			cpus = append(cpus, id)
		}
	}
	return cpus
}
