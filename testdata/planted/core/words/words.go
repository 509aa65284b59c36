package words

// Told says whether the server
// was told of it.
func Told(news bool) bool { return news }

// tellingApart is fine: only whole words count.
type tellingApart struct{}

// The Count of something.
func Count() {}

func Bare() {}
