// Package impure depends on more than its arguments, in every way that is looked for.
package impure

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"
)

type counter struct{ n int }

func (c *counter) add() { c.n++ }

func (c counter) get() int { return c.n }

var (
	total   int
	byName  = map[string]int{}
	counted counter
	table   = []int{1, 2, 3}
)

var inbox chan int // want "impure: channel"

func concurrency() {
	go concurrency() // want "impure: goroutine"
	select {         // want "impure: select"
	case <-inbox: // want "impure: receive from a channel"
	}
	inbox <- 1 // want "impure: send to a channel"
}

func clocks() {
	_ = time.Now()                // want "impure: time.Now"
	_ = time.Since(time.Time{})   // want "impure: time.Since"
	now := time.Now               // want "impure: time.Now"
	_ = now().In(time.Local)      // want "impure: time.Local"
	time.Sleep(1)                 // want "impure: time.Sleep"
	_ = time.Unix(1, 0).UTC()     // a function of its arguments
	_ = time.Second.Seconds()     // likewise
	_ = time.AfterFunc(1, clocks) // want "impure: time.AfterFunc"
}

func randomness() {
	_ = rand.IntN(5)                        // want "impure: math/rand/v2.IntN draws from the global"
	_ = rand.New(rand.NewPCG(1, 2)).IntN(5) // seeded
}

func output() {
	fmt.Println("x") // want "impure: fmt.Println"
	println("x")     // want "impure: println"
	_ = fmt.Sprint("x")
}

func orders(m map[string]int) {
	for range m { // want "impure: range over a map without"
	}
	for range m { //ordered: only counted
	}
	for range m { /* want "say why the order does not matter" */ //ordered:
	}
	for range table { //ordered: by index // want "no map is walked on this line"
	}
	for range slices.Sorted(maps.Keys(m)) {
	}
	for range maps.Keys(m) { // want "impure: maps.Keys outside slices.Sorted"
	}
	_ = slices.Collect(maps.Values(m)) // want "impure: maps.Values outside slices.Sorted"
	_ = reflect.ValueOf(m).MapKeys()   // want "impure: reflect.MapKeys walks a map"
}

func products(x, y, z float64) {
	_ = x*y + z           // want "impure: product of floats"
	_ = z - (x * y)       // want "impure: product of floats"
	t := x * y            // want "impure: product of floats"
	z += x * y            // want "impure: product of floats"
	_ = max(x*y, z)       // want "impure: product of floats"
	_ = t + float64(x*y)  // rounded
	_ = int((x * y)) + 1  // likewise
	_ = x*y/z*t > 1       // nothing is added
	_ = int(x)*int(y) + 1 // whole numbers
}

func globals() {
	total = 1           // want "impure: assignment to the global total"
	total++             // want "impure: assignment to the global total"
	byName["a"] = 1     // want "impure: assignment to the global byName"
	delete(byName, "a") // want "impure: delete of the global byName"
	clear(byName)       // want "impure: clear of the global byName"
	table[0] = 2        // want "impure: assignment to the global table"
	counted.n = 1       // want "impure: assignment to the global counted"
	counted.add()       // want "impure: address of the global counted"
	_ = counted.get()
	_ = &total // want "impure: address of the global total"
	total := 0 // another total
	total++
	_ = total
	_ = table[0] + byName["a"]
}
