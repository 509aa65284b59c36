package web

import (
	"net/netip"
	"testing"
)

// A new connection is refused if all others serve a request. Once one of them does not, it makes
// room.
func TestConnectionsThatServeRequests(t *testing.T) {
	l := boundConnections(nil, connectionBounds{total: 2, strangers: 2, perAddress: 2})
	newConnection := func(address string) *connection {
		return &connection{owner: l, address: netip.MustParseAddr(address)}
	}
	var busy []*connection
	for range 2 {
		c := newConnection("192.0.2.1")
		if other, ok := l.admit(c); other != nil || !ok {
			t.Fatalf("a connection has no room: %v, %v", other, ok)
		}
		c.begin()
		c.begin()
		c.end()
		busy = append(busy, c)
	}
	if other, ok := l.admit(newConnection("192.0.2.2")); other != nil || ok {
		t.Errorf("one more connection: %v, %v", other, ok)
	}
	busy[1].end()
	if other, ok := l.admit(newConnection("192.0.2.2")); other != busy[1] || !ok {
		t.Errorf("an idle connection makes no room: %v, %v", other, ok)
	}
	if len(l.open) != 2 || l.strangers != 1 || l.refused != 1 || l.closedIdle != 1 {
		t.Errorf("%d open, %d of strangers, %d refused, %d closed", len(l.open), l.strangers, l.refused,
			l.closedIdle)
	}
}
