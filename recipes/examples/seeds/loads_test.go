package seeds

// The loads: what each recipe does while a server dies, and what must be true
// afterwards.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringside/internal/testenv"
	"ringside/recipes"
)

// real returns a store like that of the bed with the real clock.
func (b *bed) real() *recipes.Store {
	s := *b.Store
	s.Now = nil
	return &s
}

func loadLock(b *bed) {
	name := b.name("lock")
	lock := must(recipes.NewLock(b.real(), name, 3*time.Second))
	var overlaps, lost atomic.Int64
	var mu sync.Mutex
	inside := map[*recipes.Lease]bool{}
	fences := map[uint64]bool{}
	highest, disorder, doubled := uint64(0), 0, 0
	b.l.work = func(int) error {
		lease, err := lock.Acquire(ctx, time.Second)
		if errors.Is(err, recipes.ErrLocked) {
			return nil
		} else if err != nil {
			return err
		}
		mu.Lock()
		alone := true
		for other := range inside { // a holder whose lock has expired does not count
			alone = alone && !time.Now().Before(other.Until())
		}
		inside[lease] = true
		if !alone {
			overlaps.Add(1)
		}
		if fences[lease.Fence()] {
			doubled++
		}
		if alone && lease.Fence() < highest {
			disorder++
		}
		fences[lease.Fence()] = true
		highest = max(highest, lease.Fence())
		mu.Unlock()
		time.Sleep(5 * time.Millisecond) // so that a second holder is noticed
		mu.Lock()
		delete(inside, lease)
		mu.Unlock()
		if err = lease.Release(ctx); errors.Is(err, recipes.ErrLockLost) {
			lost.Add(1)
			return nil
		}
		return err
	}
	b.l.check = func(t *testing.T) string {
		is(t, b.l.copies()+": fencing numbers given twice", doubled, 0)
		is(t, b.l.copies()+": fencing numbers that fell", disorder, 0)
		if doubt := b.adds.of(b.Prefix + "lock:" + name); b.l.two && overlaps.Load() > int64(doubt) {
			t.Errorf("%s: %d times two holders, after %d adds in doubt", b.l.copies(), overlaps.Load(), doubt)
		}
		return fmt.Sprintf("%d grants, %d times two holders, %d lost; no fencing number twice, none lower than one before", len(fences), overlaps.Load(), lost.Load())
	}
}

func loadCounter(b *bed) {
	name := b.name("count")
	c := must(recipes.NewCounter(b.real(), name, 0))
	b.l.work = func(int) error { _, err := c.Add(ctx, 1); return err }
	b.l.check = func(t *testing.T) string {
		n, sure := must(c.Value(ctx)), uint64(b.l.sure.Load())
		b.between(t, "the counter", n, b.Prefix+"count:"+name)
		for range 100 {
			must(c.Add(ctx, 1))
		}
		is(t, b.l.copies()+": after a hundred more", must(c.Value(ctx)), n+100)
		return fmt.Sprintf("%d of %d sure", n, sure)
	}
}

func loadViews(b *bed) {
	var database atomic.Uint64
	const before = 5000
	database.Store(before)
	name := b.name("views")
	v := must(recipes.NewViewCounter(b.real(), name, 0, func(context.Context) (uint64, error) { return database.Load(), nil }))
	b.l.work = func(worker int) error {
		n, err := v.View(ctx)
		if err != nil {
			return err
		}
		if worker == 0 { // saves to the database, and never lowers the number there
			for old := database.Load(); n > old && !database.CompareAndSwap(old, n); old = database.Load() {
			}
		}
		return nil
	}
	b.l.check = func(t *testing.T) string {
		n, sure := must(v.Value(ctx)), uint64(b.l.sure.Load())
		b.between(t, "the counter", n-before, b.Prefix+"views:"+name)
		if n < database.Load() {
			t.Errorf("%s: %d views, and the database has %d", b.l.copies(), n, database.Load())
		}
		return fmt.Sprintf("%d of %d sure", n-before, sure)
	}
}

// truth is what was counted in each period: the calls that succeeded, and all
// calls.
type truth struct {
	mu   sync.Mutex
	sure map[int64]uint64
	most map[int64]uint64
}

func (y *truth) add(m map[int64]uint64, period int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	m[period]++
}

// of returns the numbers of the n periods before a period.
func (y *truth) of(m map[int64]uint64, before, n int64) (numbers []uint64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for p := before - n; p < before; p++ {
		numbers = append(numbers, m[p])
	}
	return numbers
}

func loadVisitors(b *bed) {
	c := must(recipes.NewVisitorCounter(b.Store, "v", time.Minute))
	loadPeriods(b, "visitors:%d:v", 1, c.Count, c.Value)
}

func loadOnline(b *bed) {
	c := must(recipes.NewOnlineCounter(b.Store, "o"))
	loadPeriods(b, "online:%d:o", 5, c.Count, c.Value)
}

// look is one reading of a counter of periods.
type look struct {
	now   int64
	shown uint64
	least []uint64 // for each period that is shown: what had surely been counted before the reading
}

// loadPeriods compares what the counter shows with what was counted, throughout
// the test.
func loadPeriods(b *bed, key string, periods int64, count func(context.Context) error, value func(context.Context) (uint64, error)) {
	y := &truth{sure: map[int64]uint64{}, most: map[int64]uint64{}}
	var looks []look // used by worker 0 only
	b.l.work = func(worker int) error {
		if worker > 0 {
			from := minute(b.Now())
			err := count(ctx)
			to := minute(b.Now())
			for m := from; m <= to; m++ { // it was counted in one of these
				y.add(y.most, m)
			}
			if err == nil && to == from {
				y.add(y.sure, from)
			}
			return err
		}
		now := minute(b.Now())
		least := y.of(y.sure, now, periods)
		n, err := value(ctx)
		if err == nil && minute(b.Now()) == now {
			looks = append(looks, look{now, n, least})
		}
		return err
	}
	b.l.check = func(t *testing.T) string {
		short, late := 0, int64(0)
		for _, k := range looks {
			least, most, all := uint64(0), uint64(0), y.of(y.most, k.now, periods)
			for i := range periods {
				most += all[i]
				if b.adds.of(b.Prefix+fmt.Sprintf(key, k.now-periods+i)) == 0 {
					least += k.least[i]
				}
			}
			if k.shown > most {
				t.Errorf("%s: %d were shown, where %d is the most", b.l.copies(), k.shown, most)
			}
			if k.shown < least {
				short++
				late = k.now - b.l.calm.Load()
			}
		}
		if b.l.two {
			is(t, b.l.copies()+": looks that showed too little", short, 0)
		}
		if short > 0 && late > periods+1 {
			t.Errorf("%s: still short %d minutes after all servers were in", b.l.copies(), late)
		}
		return fmt.Sprintf("short in %d of %d looks, right again after it", short, len(looks))
	}
}

// versions is a database of one row. It checks that readers do not see old
// versions.
type versions struct {
	now, acknowledged atomic.Int64
	stale, reads      atomic.Int64
	builds            atomic.Int64
	mu                sync.Mutex // serializes writers
	example           atomic.Value
}

func (v *versions) build() []byte {
	v.builds.Add(1)
	return strconv.AppendInt(nil, v.now.Load(), 10)
}

// read checks a value against floor, the lowest version that was valid when the
// read began.
func (v *versions) read(floor int64, value []byte) {
	v.reads.Add(1)
	if n, err := strconv.ParseInt(string(value), 10, 64); err != nil || n < floor {
		v.stale.Add(1)
		v.example.Store(fmt.Sprintf("%s after %d", value, floor))
	}
}

// write changes the row, and retries invalidate until it succeeds.
func (v *versions) write(invalidate func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.now.Add(1)
	var failed error
	for end := time.Now().Add(testenv.Patience); time.Now().Before(end); {
		err := invalidate()
		if err == nil {
			v.acknowledged.Store(n)
			return failed
		}
		failed = err
		time.Sleep(10 * time.Millisecond)
	}
	return failed
}

func (v *versions) check(t *testing.T, l *load) string {
	if v.stale.Load() > 0 {
		t.Errorf("%s: %d of %d reads were stale: %v", l.copies(), v.stale.Load(), v.reads.Load(), v.example.Load())
	}
	return fmt.Sprintf("%d reads, %d stale", v.reads.Load(), v.stale.Load())
}

func loadGuarded(b *bed) {
	c := must(recipes.NewGuardedCache(b.real(), "g", recipes.GuardedOptions{Expires: time.Minute, Wait: 2 * time.Second}))
	key := b.name("guarded:1:g") // "guarded:<length of the cache's name>:<name>:<key>"
	v := &versions{}
	b.l.work = func(worker int) error {
		if worker == 0 {
			return v.write(func() error { return c.Delete(ctx, key) })
		}
		floor := v.acknowledged.Load()
		value, err := c.Get(ctx, key, func(context.Context) ([]byte, error) { return v.build(), nil })
		if errors.Is(err, recipes.ErrBuilding) {
			return nil
		} else if err == nil {
			v.read(floor, value)
		}
		return err
	}
	b.l.check = func(t *testing.T) string { return v.check(t, b.l) + fmt.Sprintf(", %d builds", v.builds.Load()) }
}

func loadTagged(b *bed) {
	c := must(recipes.NewTaggedCache(b.real(), "t"))
	tag := b.name("tag:1:t")
	v := &versions{}
	b.l.work = func(worker int) error {
		if worker == 0 {
			return v.write(func() error { return c.Invalidate(ctx, tag) })
		}
		floor := v.acknowledged.Load()
		value, fill, err := c.Get(ctx, "page", tag, "another")
		if err == nil {
			v.read(floor, value)
		} else if errors.Is(err, recipes.ErrMiss) {
			err = fill.Set(ctx, v.build(), time.Minute)
		}
		return err
	}
	b.l.check = func(t *testing.T) string { return v.check(t, b.l) + fmt.Sprintf(", %d builds", v.builds.Load()) }
}

// entries records what was written, and whether each write succeeded.
type entries struct {
	adds *addsInDoubt
	mu   sync.Mutex
	n    int
	sure map[string]bool
	key  map[string]string // key that contains each entry
}

func newEntries(b *bed) *entries {
	return &entries{adds: b.adds, sure: map[string]bool{}, key: map[string]string{}}
}

func (e *entries) next(worker int) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	return fmt.Sprintf("%d.%d", worker, e.n)
}

func (e *entries) written(entry, key string, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sure[entry], e.key[entry] = err == nil, key
	return err
}

// judge counts entries that are lost, that exist twice, and that were never
// written.
func (e *entries) judge(t *testing.T, l *load, got []string) string {
	t.Helper()
	times := map[string]int{}
	twice, lost, unexplained, strange, sure := 0, 0, 0, 0, 0
	for _, g := range got {
		if times[g]++; times[g] == 2 {
			twice++
		}
		if _, known := e.sure[g]; !known {
			strange++
		}
	}
	for entry, is := range e.sure {
		if is {
			sure++
			if times[entry] == 0 {
				lost++
				if e.adds.of(e.key[entry]) == 0 {
					unexplained++
				}
			}
		}
	}
	is(t, l.copies()+": entries that nobody wrote", strange, 0)
	is(t, l.copies()+": entries that are there twice", twice, 0)
	if l.two {
		is(t, l.copies()+": entries that are lost", unexplained, 0)
	}
	return fmt.Sprintf("%d of %d sure entries lost, %d twice", lost, sure, twice)
}

func loadLog(b *bed) {
	log := must(recipes.NewEventLog(b.real(), "l", recipes.EventLogOptions{Chunk: time.Second, Chunks: 100, Parts: 1}))
	e := newEntries(b)
	began := time.Now()
	var cursor recipes.Cursor
	var polled []string
	poll := func() error {
		events, next, err := log.Poll(ctx, cursor)
		cursor = next
		for _, v := range events {
			polled = append(polled, string(v.Data))
		}
		return err
	}
	b.l.work = func(worker int) error {
		if worker == 0 {
			return poll()
		}
		entry := e.next(worker)
		now := time.Now()
		key := fmt.Sprintf("%slog:%d:0:l", b.Prefix, now.Unix())
		return e.written(entry, key, log.Put(ctx, recipes.Event{Time: now, Data: []byte(entry)}))
	}
	b.l.check = func(t *testing.T) string {
		var found []string
		for _, v := range must(log.Fetch(ctx, began.Add(-time.Minute), time.Now().Add(time.Minute))) {
			found = append(found, string(v.Data))
		}
		text := e.judge(t, b.l, found)
		if err := poll(); err != nil {
			t.Error(err)
		}
		is(t, b.l.copies()+": events polled twice", len(polled)-len(slices.Compact(slices.Sorted(slices.Values(polled)))), 0)
		for i := range 100 {
			if err := log.Put(ctx, recipes.Event{Data: fmt.Appendf(nil, "after %d", i)}); err != nil {
				t.Error(err)
			}
		}
		polled = nil
		if err := poll(); err != nil {
			t.Error(err)
		}
		is(t, b.l.copies()+": of a hundred more", len(polled), 100)
		return text
	}
}

func loadArray(b *bed) {
	name := b.name("array:0")
	a := must(recipes.NewArray(b.real(), name, recipes.ArrayOptions{}))
	e := newEntries(b)
	b.l.work = func(worker int) error {
		entry := e.next(worker)
		// One in five is removed again, which costs marks and leaves no element.
		if strings.HasSuffix(entry, "0") || strings.HasSuffix(entry, "5") {
			gone := "gone" + entry
			return errors.Join(a.Add(ctx, gone), a.Remove(ctx, gone))
		}
		return e.written(entry, b.Prefix+"array:0:"+name, a.Add(ctx, entry))
	}
	b.l.check = func(t *testing.T) string {
		list := slices.DeleteFunc(must(a.Fetch(ctx)), func(s string) bool { return strings.HasPrefix(s, "gone") })
		text := e.judge(t, b.l, list)
		for i := range 100 {
			if err := a.Add(ctx, fmt.Sprint("after", i)); err != nil {
				t.Error(err)
			}
		}
		after := slices.DeleteFunc(must(a.Fetch(ctx)), func(s string) bool { return !strings.HasPrefix(s, "after") })
		is(t, b.l.copies()+": of a hundred more", len(after), 100)
		return text
	}
}

func loadTable(b *bed) {
	name := b.name("table:0")
	table := must(recipes.NewTable(b.real(), name, recipes.TableOptions{Audit: 20}))
	e := newEntries(b)
	b.l.work = func(worker int) error {
		entry := e.next(worker)
		if err := e.written(entry, b.Prefix+"table:0:"+name, table.Add(ctx, entry, []byte("value of "+entry))); err != nil {
			return err
		}
		_, err := table.Get(ctx, entry)
		if errors.Is(err, recipes.ErrMiss) && !b.l.two {
			return nil // its server has just died
		}
		return err
	}
	b.l.check = func(t *testing.T) string {
		must(table.Repair(ctx))
		members := must(table.Members(ctx))
		for m, v := range must(table.All(ctx)) {
			if v := string(v); v != "" && v != "value of "+m || b.l.two && v == "" && e.sure[m] {
				t.Errorf("%s: member %s has value %q", b.l.copies(), m, v)
			}
			if !must(table.Has(ctx, m)) {
				t.Errorf("%s: %s is listed and not there", b.l.copies(), m)
			}
		}
		return e.judge(t, b.l, members)
	}
}

func loadRows(b *bed) {
	ids := []string{"web0", "web1", "web2", "web3"}
	clock := newFastClock()
	s := *b.Store
	s.Now = clock.Now
	var all []*recipes.DistributedCounter
	for _, id := range ids {
		all = append(all, must(recipes.NewDistributedCounter(&s, "r", recipes.DistributedOptions{ID: id, IDs: ids, Every: time.Minute})))
	}
	var complete bool // used by worker 0 only
	fewest := len(ids)
	b.l.work = func(worker int) error {
		all[worker].Add(1)
		if err := all[worker].Flush(ctx); err != nil || worker > 0 {
			return err
		}
		_, rows, err := all[0].Total(ctx)
		if complete = complete || rows == len(ids); complete && err == nil {
			fewest = min(fewest, rows)
		}
		return err
	}
	b.l.check = func(t *testing.T) string {
		clock.stop()
		for i := range 2 { // the first round replaces what was counted before the clock stopped
			for _, c := range all {
				c.Add(uint64(10 * i))
			}
			clock.sleep(time.Minute)
		}
		for _, c := range all {
			if err := c.Flush(ctx); err != nil {
				t.Error(err)
			}
		}
		sum, rows, err := all[0].Total(ctx)
		is(t, b.l.copies()+": rows and their sum after it", fmt.Sprint(rows, sum, err), "4 40 <nil>")
		// Ringside deletes the key after a set that failed, so that row is missing
		// until it is written again.
		if errs := int(b.l.doubtful.Load()); b.l.two && fewest < len(ids)-errs {
			t.Errorf("%s: %d rows at worst after %d errors", b.l.copies(), fewest, errs)
		}
		return fmt.Sprintf("%d of 4 rows at worst, 4 after it", fewest)
	}
}
