package network

import (
	"net/url"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Page is what is at a URL. The zero Page is nobody there.
type Page struct {
	Status int // as of HTTP; 0: the connection is refused, as it is for one that is not trusted
	Data   []byte
	Cut    bool // the connection ends before the page does
	Silent bool // the connection is taken, and nothing is said
}

// fetch takes a FetchManifest that has arrived.
func (n *Network) fetch(call *wire.Call, ask *world.FetchManifest) {
	where, err := url.Parse(ask.URL)
	if err != nil || where.Scheme != "http" && where.Scheme != "https" || where.Host == "" {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "it is no URL of http or https"))
		return
	}
	if call.Fate.Before != nil {
		call.Fail(call.Fate.Before)
		return
	}
	call.Begin(func() {
		page := Page{}
		if n.opts.Page != nil {
			page = n.opts.Page(ask.URL)
		}
		switch {
		case page.Silent:
		case page.Status == 0:
			refuse(call)
		case page.Status != 200:
			call.Fail(world.Errorf(world.KindUnavailable, call.Name, "status %d", page.Status))
		case page.Cut:
			call.Fail(world.Errorf(world.KindUnavailable, call.Name, "unexpected EOF"))
		case int64(len(page.Data)) > ask.BytesMax:
			call.Fail(world.Errorf(world.KindExhausted, call.Name, "the page has more than %d "+
				"bytes", ask.BytesMax))
		default:
			call.Reply(&world.ManifestFetched{Data: page.Data})
		}
	})
}
