// Package stateful keeps in its state what no snapshot can hold.
package stateful

import (
	"io"
	"time"
)

// State has every kind of field that is looked for.
type State struct { // want `Inner.Callback is a function` `Inner.ByName\[\] is a channel` `Port is an interface` `Log is an interface, Writer` `lost is not in the snapshot` `Lost is not in the snapshot`
	Name  string
	Since time.Time
	Body  any
	Inner *inner
	Port  port
	Log   io.Writer
	Peers map[string][]*State
	Own   own
	lost  int
	Lost  int `json:"-"`
}

type inner struct {
	Callback func()
	ByName   map[string]chan int
}

type port interface{ Do() }

// own knows how to write itself, so its fields need not be exported.
type own struct{ n int }

func (own) MarshalJSON() ([]byte, error) { return nil, nil }
