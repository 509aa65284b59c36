package truth

import "seedlet.dev/world"

// What happens to objects of the API server, as it stores them. The fact has a Write.
const (
	ObjectMade    Kind = "ObjectMade"
	ObjectWritten Kind = "ObjectWritten"
	ObjectRemoved Kind = "ObjectRemoved"
)

// TokenMade says that the API server has made a token: Token, Expires.
const TokenMade Kind = "TokenMade"

// Write is one change of an object of the API server. The objects are not to be changed.
type Write struct {
	Resource        world.Resource
	Namespace, Name string
	Before, After   world.Object // empty if there was none, or is none any more
	Status          bool         // through the status subresource
	Life            int          // of the agent that asked for it; zero: somebody else, see By
	By              string       // who else
}
