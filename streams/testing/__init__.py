"""What ships for tests of projects that use Facetline: the pytest plugin and a running pipeline."""
