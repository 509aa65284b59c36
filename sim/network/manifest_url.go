package network

import (
	"net/url"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Page is the state of a URL. The zero Page refuses connections.
type Page struct {
	Status    int // HTTP status; 0: the connection is refused or not trusted
	Data      []byte
	Truncated bool // the connection ends before the body does
	Hangs     bool // the server accepts the connection and does not respond
}

// fetchManifest handles a FetchManifest call that has arrived.
func (n *Network) fetchManifest(call *wire.Call, request *world.FetchManifest) {
	target, err := url.Parse(request.URL)
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" {
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "it is no URL of http or https"))
		return
	}
	if call.Outcome.ErrorBefore != nil {
		call.Fail(call.Outcome.ErrorBefore)
		return
	}
	call.Execute(func() {
		page := Page{}
		if n.opts.Page != nil {
			page = n.opts.Page(request.URL)
		}
		switch {
		case page.Hangs:
		case page.Status == 0:
			refuse(call)
		case page.Status != 200:
			call.Fail(world.Errorf(world.KindUnavailable, call.Name, "status %d", page.Status))
		case page.Truncated:
			call.Fail(world.Errorf(world.KindUnavailable, call.Name, "unexpected EOF"))
		case int64(len(page.Data)) > request.BytesMax:
			call.Fail(world.Errorf(world.KindExhausted, call.Name, "the page has more than %d "+
				"bytes", request.BytesMax))
		default:
			fetched, err := request.Documents.ConvertPage(page.Data)
			if err != nil {
				call.Fail(err)
				return
			}
			call.Reply(fetched)
		}
	})
}
