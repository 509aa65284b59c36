package mutation

import (
	"slices"
	"testing"
)

// Every operator finds its places, and the changed text has the change alone.
func TestSites(t *testing.T) {
	const text = `package p

func (p *pod) f(n int) bool {
	for n < 3 && p.ok {
		n++
	}
	if !p.ok {
		p.stop(n)
		panic("x")
	}
	switch {
	case n == 2:
		p.count, p.ok = n, false
	}
	p.count += 2
	x := n
	return x > 2 || p.ok
}

func generic[T any](x T) { use(x) }
`
	sites, err := sitesOf("p.go", text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range sites {
		got = append(got, sites[i].String())
	}
	want := []string{
		"p.go:4 f: negate: n < 3 && p.ok → !(n < 3 && p.ok)",
		"p.go:4 f: drop-left: n < 3 && p.ok → p.ok",
		"p.go:4 f: drop-right: n < 3 && p.ok → n < 3",
		"p.go:4 f: shift-bound: n < 3 → n <= 3",
		"p.go:5 f: delete-assign: n++ → (nothing)",
		"p.go:7 f: negate: !p.ok → p.ok",
		"p.go:8 f: delete-call: p.stop(n) → (nothing)",
		"p.go:12 f: negate: n == 2 → !(n == 2)",
		"p.go:13 f: delete-assign: p.count, p.ok = n, false → _, _ = n, false",
		"p.go:15 f: delete-assign: p.count += 2 → _ = 2",
		"p.go:17 f: drop-left: x > 2 || p.ok → p.ok",
		"p.go:17 f: drop-right: x > 2 || p.ok → x > 2",
		"p.go:17 f: shift-bound: x > 2 → x >= 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	changed, err := withMutant(text, 7, sites[6].Edits())
	if err != nil {
		t.Fatal(err)
	}
	again, err := withMutant(changed, 8, sites[0].Edits())
	if err != nil || again == changed {
		t.Errorf("a second mutant of the same function: %v", err)
	}
}
